#pragma once
// Sums and largest elements of a row that the forward kernel saves, and the gradient reads in place of finding them
// again: double numbers, one after the other for each row. Phases that wait for nothing else are one loop.
#include "row_range.h"

namespace fusegen {
namespace {

// The numbers of a row that a forward kernel F saves, and those that a gradient F reads.
template <class F, class = void>
constexpr int SAVES = 0;
template <class F>
constexpr int SAVES<F, std::void_t<decltype(F::SAVED)>> = F::SAVED;
template <class F, class = void>
constexpr int READS_SAVED = 0;
template <class F>
constexpr int READS_SAVED<F, std::void_t<decltype(F::Values::SAVED)>> = F::Values::SAVED;

// The memory of what is saved of all rows, if any is, and whether a forward kernel stores its results, too.
template <class F, bool = (SAVES<F> + READS_SAVED<F> > 0)>
struct SavedMemory {};
template <class F>
struct SavedMemory<F, true> {
  double* memory = nullptr;
  bool stores = true;
};

// Values of a row, and the COUNT numbers that were saved of it.
template <class VALUES, int COUNT>
struct WithSaved : VALUES {
  static constexpr int SAVED = COUNT;
  double saved[COUNT];
};
template <class VALUES, int COUNT>
HOST_DEVICE bool are_in_range(const WithSaved<VALUES, COUNT>& p) {
  return are_in_range(static_cast<const VALUES&>(p));
}

// A phase whose results are saved as the numbers NUMBERS, or reduced here, where that is -1.
template <class PHASE, int... NUMBERS>
struct Saved : PHASE {
  static constexpr int REDUCED = (0 + ... + int(NUMBERS < 0));
  static constexpr unsigned IN = REDUCED ? PHASE::IN : 0;

  static constexpr int number(int result) {
    constexpr int OF[] = {NUMBERS...};
    return OF[result];
  }
  // Calls a function with the place and the type of each reduction.
  template <class FUNCTION>
  static HOST_DEVICE void each(FUNCTION&& function, int place) {
    PHASE::each([&](int k, auto fold) {
      if (number(k) < 0) function(place++, fold);
    });
  }
  template <typename T, typename M, class P>
  static HOST_DEVICE void element(const M* in, M* out, const P& p) {
    M all[PHASE::RESULTS];
    PHASE::template element<T>(in, all, p);
    UNROLL
    for (int k = 0, own = 0; k < PHASE::RESULTS; ++k)
      if (number(k) < 0) out[own++] = all[k];
  }
  template <class P>
  static HOST_DEVICE void row(const double* r, P& p) {
    double all[PHASE::RESULTS];
    UNROLL
    for (int k = 0, own = 0; k < PHASE::RESULTS; ++k) all[k] = number(k) < 0 ? r[own++] : p.saved[number(k)];
    PHASE::row(all, p);
  }
};

// Phases, each a type Saved, in one loop, or in none, where all their results are saved.
template <class... PHASES>
struct OneLoop {
  static constexpr unsigned IN = (0u | ... | PHASES::IN);
  static constexpr int RESULTS = (0 + ... + PHASES::REDUCED);
  static constexpr bool STORES = false, PICKS = false, CANCELS = false, WATCHES = false, EXACT = false;
  static constexpr bool ROUNDS = true, BOUNDED = false;

  template <class FUNCTION>
  static HOST_DEVICE void each(FUNCTION&& function) {
    int place = 0;
    ((PHASES::each(function, place), place += PHASES::REDUCED), ...);
  }
  template <typename T, typename M, class P>
  static HOST_DEVICE void element(const M* in, M* out, const P& p) {
    int place = 0;
    ((PHASES::template element<T>(in, out + place, p), place += PHASES::REDUCED), ...);
  }
  template <class P>
  static HOST_DEVICE void row(const double* r, P& p) {
    int place = 0;
    ((PHASES::row(r + place, p), place += PHASES::REDUCED), ...);
  }
  // Computes what follows from saved numbers alone, which elements read.
  template <class P>
  static HOST_DEVICE void begin(P& p) {
    const double none[RESULTS + 1] = {};
    row(none, p);
  }
  template <class P>
  static HOST_DEVICE void take(P& p, const P& from) {
    (PHASES::take(p, from), ...);
  }
};
template <class PHASE>
constexpr bool IS_ONE_LOOP_OF_SAVED = false;
template <class... PHASES>
constexpr bool IS_ONE_LOOP_OF_SAVED<OneLoop<PHASES...>> = true;

// True if a gradient has all sums from what was saved, so that its elements are read once, and stored.
template <int IN, int OUT, int P, class VALUES, class... PHASES>
constexpr bool only_stores(const Rows<IN, OUT, P, VALUES, PHASES...>*) {
  return (... && (PHASES::STORES || PHASES::PICKS || PHASES::RESULTS == 0));
}
template <class F>
constexpr bool ONLY_STORES = READS_SAVED<F> > 0 && only_stores(static_cast<const F*>(nullptr));

// Runs such a loop, if there is anything to reduce.
template <class PHASE, class TEAM, class ROW, class UNITS, class VALUES>
__device__ __forceinline__ void run_behind_saved(TEAM& team, const ROW& row, const UNITS& units, VALUES& p, int& turn) {
  PHASE::begin(p);
  if constexpr (PHASE::RESULTS > 0) team.template run_loop<PHASE>(row, units, p, turn);
}

// Saves numbers of a row, if this thread is to and they are wanted; returns whether results are stored, too.
template <class F, class VALUES>
__device__ __forceinline__ bool save_values(const SavedMemory<F>& to, int64_t row, const VALUES& p, bool is_first) {
  if (to.memory && is_first) F::save(p, to.memory + row * SAVES<F>);
  return to.stores;
}

// Reads what was saved of a row.
template <class F, class VALUES>
HOST_DEVICE void read_saved(const SavedMemory<F>& from, int64_t row, VALUES& p) {
  if constexpr (READS_SAVED<F> > 0) {
    UNROLL
    for (int k = 0; k < READS_SAVED<F>; ++k) p.saved[k] = from.memory[row * READS_SAVED<F> + k];
  }
}

}  // namespace
}  // namespace fusegen

// The statements that set what a forward kernel saves out of values p of a row.
#define FUSEGEN_SAVED(COUNT, ...)                               \
  static constexpr int SAVED = COUNT;                           \
  template <class VALUES>                                       \
  static HOST_DEVICE void save(const VALUES& p, double* to) {   \
    __VA_ARGS__;                                                \
  }

// The functions that the binding calls, in place of those of launcher.h: a forward kernel that may save numbers of
// rows, and store its results or not, and a gradient that reads them, with a workspace for sums over the rows.
#define FUSEGEN_RUN_SAVED run_saved
#ifdef WITHOUT_FORWARD
#define FUSEGEN_SAVING(NAME)
#else
#define FUSEGEN_SAVING(NAME)                                                                                 \
  extern "C" const char* NAME##_save(const fusegen::CallOf<fusegen::Forward>& call, double* to, bool stores) { \
    return fusegen::FUSEGEN_RUN_SAVED<fusegen::Forward>(call, nullptr, {to, stores});                        \
  }
#endif
#ifdef WITHOUT_BACKWARD
#define FUSEGEN_READING(NAME)
#define FUSEGEN_ROOM(NAME)
#else
#define FUSEGEN_READING(NAME)                                                                                      \
  extern "C" const char* NAME##_read(const fusegen::CallOf<fusegen::Backward>& call, void* workspace, double* saved) { \
    return fusegen::FUSEGEN_RUN_SAVED<fusegen::Backward>(call, workspace, {saved, true});                          \
  }
#define FUSEGEN_ROOM(NAME)                                                                \
  extern "C" int64_t NAME##_workspace(const fusegen::CallOf<fusegen::Backward>& call) {   \
    return fusegen::workspace_bytes<fusegen::Backward>(call);                             \
  }
#endif
#define FUSEGEN_SAVING_KERNELS(NAME) \
  FUSEGEN_FORWARD(NAME)              \
  FUSEGEN_SAVING(NAME##_forward)     \
  FUSEGEN_READING(NAME##_backward)
#define FUSEGEN_SAVING_BROADCASTING_KERNELS(NAME) \
  FUSEGEN_SAVING_KERNELS(NAME)                    \
  FUSEGEN_ROOM(NAME##_backward)
