#ifndef FUSEGEN_CALL_H  // both texts of a kernel for the CPU have it
#define FUSEGEN_CALL_H
// The arguments that the binding passes to a kernel.
#include <cstdint>

namespace fusegen {

constexpr int MAX_RANK = 25;

// Element types by their number in c10::ScalarType.
enum Dtype { FLOAT16 = 5, FLOAT32 = 6, FLOAT64 = 7, BFLOAT16 = 15 };
template <int... NUMBERS>
struct Dtypes {};
using AllDtypes = Dtypes<FLOAT32, FLOAT16, BFLOAT16, FLOAT64>;

// N tensors, the inputs first and then the outputs.
template <int N>
struct Tensors {
  void* data[N];
  int64_t numel;
  int dtype, device;    // c10::ScalarType; index of the CUDA device
  void* stream;         // that device's current stream
  bool dense, aligned;  // all tensors have one layout, without gaps; every pointer is a multiple of 16
  int rank;             // of size and stride: outermost first, in elements, neighbours merged
  int64_t size[MAX_RANK], stride[N][MAX_RANK];
};

// The tensors, and P scalars.
template <int N, int P>
struct Call : Tensors<N> {
  double param[P];
};
template <int N>
struct Call<N, 0> : Tensors<N> {};

// The scalars of a formula that reads none, in the type it computes in.
template <typename M>
struct NoParams {
  template <int P>
  static NoParams from(const double (&)[P]) {
    return {};
  }
};

// The scalars of a call as PARAMS.
template <class PARAMS, int N, int P>
PARAMS params(const Call<N, P>& call) {
  if constexpr (P == 0) return {};
  else return PARAMS::from(call.param);
}

// True if an output is a sum over some dimensions: those in which it has the stride 0.
template <int N>
bool is_sum(const Tensors<N>& call, int k) {
  for (int d = 0; d < call.rank; ++d)
    if (call.stride[k][d] == 0) return true;
  return false;
}

template <int IN, int N>
bool has_sums(const Tensors<N>& call) {
  for (int k = IN; k < N; ++k)
    if (is_sum(call, k)) return true;
  return false;
}

// The method of an element type, by its width: one for each of 16, 32 and 64 bits.
template <class BITS16, class BITS32, class BITS64>
struct ByWidth {
  template <typename T>
  static constexpr auto method() {
    if constexpr (sizeof(T) == 2) return BITS16();
    else if constexpr (sizeof(T) == 4) return BITS32();
    else return BITS64();
  }
};

// By the formula, evaluated in M and rounded once.
template <typename M>
struct Formula;

// A kernel of IN inputs and OUT outputs, whose formula reads PARAMS, of the P scalars of its call. A derived type has
// `element`, which computes one element, and what differs from the defaults here.
template <int IN, int OUT, template <typename> class PARAMS = NoParams, int P = 0>
struct Elementwise {
  static constexpr int INPUTS = IN, OUTPUTS = OUT, SCALARS = P;
  static constexpr bool TWO_PHASES = false;   // whether few elements are left to a second, slower phase
  static constexpr bool BROADCASTS = false;   // whether tensors of several shapes have loops of their own
  static constexpr int RESIDENT_THREADS = 0;  // on an SM for which registers are left; 0 for any number
  using Elements = AllDtypes;
  using Methods = ByWidth<Formula<float>, Formula<float>, Formula<double>>;
  template <typename M>
  using Params = PARAMS<M>;
};

// The call of a kernel, and its scalars in a type.
template <class F>
using CallOf = Call<F::INPUTS + F::OUTPUTS, F::SCALARS>;
template <class F, typename M>
using ParamsOf = typename F::template Params<M>;
template <class F, typename T>
using MethodOf = decltype(F::Methods::template method<T>());

// The body of `element`: statements that compute out[0], ... from in[0], ... and the scalars p.
#define FUSEGEN_ELEMENT(...)                                                 \
  template <typename T, typename M>                                          \
  static HOST_DEVICE void element(const M* in, M* out, const Params<M>& p) { \
    __VA_ARGS__;                                                             \
  }

}  // namespace fusegen

#endif
