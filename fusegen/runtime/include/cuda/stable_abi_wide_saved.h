#pragma once
// The binding on CUDA of kernels that save numbers of a row, as stable_abi_saved.h has it, where values of rows are in
// float32 beside elements of 16 bits.
#include "cuda/stable_abi_saved.h"
#include "stable_abi_wide_values.h"

namespace fusegen {
namespace {

template <int IN, int OUT, int PARAMS, class DTYPES, Save<IN + OUT, PARAMS> SAVE, bool RESULTS>
void boxed_wide_saving(StableIValue* stack, uint64_t, uint64_t) {
  WideOperands<IN, OUT, PARAMS, DTYPES, false> with(stack);
  Tensor saved = saved_by<RESULTS>(SAVE, with.of->call);
  for (int k = 0; k < OUT && RESULTS; ++k) put(stack + k, with.values[k]);
  put(stack + (RESULTS ? OUT : 0), saved);
}

#ifdef FUSEGEN_DIVISOR
template <int IN, int PARAMS, class DTYPES, Save<IN + 1, PARAMS> SAVE,
          const char* (*TOTAL)(const Call<IN + 1, PARAMS>&, const Reduction&)>
void boxed_wide_reduced_saving(StableIValue* stack, uint64_t, uint64_t) {
  double known;
  std::memcpy(&known, stack + IN + PARAMS, sizeof(known));
  WideOperands<IN, 1, PARAMS, DTYPES, false> with(stack);
  Tensor saved = saved_by<true>(SAVE, with.of->call);
  put_wide_reduced(stack, with, known, TOTAL);
  put(stack + 2, saved);
}
#endif

// The gradient, whose inputs behind the incoming gradients are what the forward kernel takes.
template <int IN, int OUT, int PARAMS, class DTYPES, class KERNEL>
struct WideReading {
  template <bool GIVEN, bool IS_SAVED>
  static constexpr auto BOXED =
      boxed_wide_incoming<IN, boxed_reading<IN, OUT, PARAMS, DTYPES, KERNEL, GIVEN, Reduced::INPUT, IS_SAVED>>;
};

}  // namespace
}  // namespace fusegen

#define FUSEGEN_REGISTER_WIDE_SAVING(NAMESPACE, KEY, NAME, IN, OUT, PARAMS)               \
  FUSEGEN_REGISTER_SAVING_BY(                                                             \
      NAMESPACE, KEY, NAME, IN, OUT, PARAMS,                                              \
      (fusegen::boxed_wide_saving<IN, OUT, PARAMS, Types, NAME##_save, true>),            \
      (fusegen::boxed_wide_saving<IN, OUT, PARAMS, Types, NAME##_save, false>))
#define FUSEGEN_REGISTER_WIDE_REDUCED_SAVING(NAMESPACE, KEY, NAME, IN, OUT, PARAMS) \
  FUSEGEN_REGISTER_REDUCED_SAVING_BY(NAMESPACE, KEY, NAME, IN, PARAMS, boxed_wide_reduced_saving)
#define FUSEGEN_WIDE_READING_OF(NAME, IN, OUT, PARAMS) \
  fusegen::WideReading<IN, OUT, PARAMS, fusegen::FUSEGEN_DTYPES, NAME##_of>
#define FUSEGEN_REGISTER_WIDE_READING(NAMESPACE, KEY, NAME, IN, OUT, PARAMS) \
  FUSEGEN_READING_KERNEL(NAME, IN, OUT, PARAMS)                              \
  FUSEGEN_REGISTER_READING_BY(NAMESPACE, KEY, NAME, FUSEGEN_WIDE_READING_OF(NAME, IN, OUT, PARAMS))
#define FUSEGEN_REGISTER_WIDE_READING_WITH_SUMS(NAMESPACE, KEY, NAME, IN, OUT, PARAMS) \
  FUSEGEN_READING_KERNEL_WITH_SUMS(NAME, IN, OUT, PARAMS)                              \
  FUSEGEN_REGISTER_READING_BY(NAMESPACE, KEY, NAME, FUSEGEN_WIDE_READING_OF(NAME, IN, OUT, PARAMS))
