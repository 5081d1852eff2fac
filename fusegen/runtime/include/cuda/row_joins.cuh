#pragma once
// The teams of threads that have rows, on CUDA, and how what their threads have is joined: by lanes of a warp, then by
// the warps of a block, then by the blocks of a cluster, in an order that their numbers decide.
#include "cuda/row_cluster.cuh"
#include "cuda/warp_joins.cuh"

namespace fusegen {
namespace {

constexpr int LEAST_TEAM = 8, MOST_WALKERS = 16, SMALL_BLOCK = 128, LARGE_BLOCK = 512;

// The place where a team keeps what more than one phase reads of a row; in shared memory by threads, or runs of warps.
enum class Kept { REGISTERS, SHARED, RUNS, NOWHERE };

// The layout of rows: their elements lie side by side, or apart. Then the lanes of a warp have a row each, and a warp
// walks along these rows in place of a thread of a team, or of a warp of such threads.
enum class Apart { NO, LANES, WARPS };

// The threads of a team at most: lanes of a warp, or a block. Where a row is kept, the units of a thread in registers,
// whether it is whole vectors, and whether its elements lie apart.
template <int THREADS, int UNITS, bool WHOLE, Kept KEPT = UNITS ? Kept::REGISTERS : Kept::NOWHERE,
          Apart APART = Apart::NO>
struct Shape {
  static constexpr int threads = THREADS, units = UNITS;
  static constexpr bool whole = WHOLE, apart = APART != Apart::NO, walks = APART == Apart::WARPS;
  static constexpr Kept kept = KEPT;
};

// The shared memory of a block: a value of each warp for each reduction, those of a cluster's blocks in two rooms that
// phases take in turn, and the values of the row.
template <class F>
struct Room {
  double of_warp[F::MOST_RESULTS][WARP];
  typename F::Values values;
};
template <class F>
struct ClusterRoom : Room<F> {
  double of_block[2][F::MOST_RESULTS][MOST_BLOCKS];
};
// That of a block whose lanes have rows: a value of each walker, and the values of each row.
template <class F>
struct ColumnRoom {
  double of_walker[MOST_WALKERS][WARP];
  typename F::Values values[WARP];
};
template <class F, class SHAPE>
using RoomOf = std::conditional_t<SHAPE::apart, ColumnRoom<F>,
                                  std::conditional_t<SHAPE::kept == Kept::SHARED || SHAPE::kept == Kept::RUNS,
                                                     ClusterRoom<F>, Room<F>>>;

// Joins a value of each block of a cluster.
template <class PHASE, class F, typename V>
__device__ __forceinline__ void join_blocks(V (&value)[PHASE::RESULTS], Room<F>&, int) {}
template <class PHASE, class F, typename V>
__device__ __forceinline__ void join_blocks(V (&value)[PHASE::RESULTS], ClusterRoom<F>& room, int turn) {
  const int blocks = cluster_blocks(), lane = threadIdx.x % WARP;
  if (blocks == 1) return;
  auto& of_block = room.of_block[turn % 2];
  if (threadIdx.x < blocks)
    PHASE::each([&](int k, auto) { store_in_block(&of_block[k][cluster_rank()], lane, double(value[k])); });
  arrive_at_cluster();
  wait_for_cluster();
  PHASE::each([&](int k, auto) { value[k] = V(of_block[k][lane % blocks]); });
  join_lanes<PHASE>(value, blocks);
}

// Computes what follows a phase once a row.
template <class PHASE, class VALUES, typename V>
__device__ __forceinline__ void finish_row(const V (&value)[PHASE::RESULTS], VALUES& p) {
  double wide[PHASE::RESULTS];
  PHASE::each([&](int k, auto) { wide[k] = value[k]; });
  PHASE::row(wide, p);
}

// The value that `join_lanes` makes of a lane's column, one for each of COUNT lanes: from lane L on, every STEP-th.
template <class FOLD, int COUNT, int L = 0, int STEP = 1>
__device__ __forceinline__ double joined_column(const double (&of)[MOST_WALKERS][WARP], int walkers) {
  if constexpr (STEP == COUNT && L >= MOST_WALKERS) return FOLD::IDENTITY;
  else if constexpr (STEP == COUNT) return L < walkers ? of[L][threadIdx.x % WARP] : FOLD::IDENTITY;
  else
    return FOLD::join(joined_column<FOLD, COUNT, L, 2 * STEP>(of, walkers),
                      joined_column<FOLD, COUNT, L + STEP, 2 * STEP>(of, walkers));
}

// The value that `join_lanes` makes of 32 lanes' that come one after the other, lane `reversed(i)` as number i.
constexpr int LEVELS = 5;
__device__ __forceinline__ int reversed(int i) { return int(__brev(unsigned(i)) >> (32 - LEVELS)); }
template <class PHASE, typename V>
struct InTurn {
  V waiting[LEVELS + 1][PHASE::RESULTS];  // joined values of 1, 2, 4 ... lanes
  __device__ __forceinline__ void put(int i, V (&value)[PHASE::RESULTS]) {
    bool carries = true;
#pragma unroll
    for (int level = 0; level <= LEVELS; ++level) {
      const bool has = i >> level & 1;
      PHASE::each([&](int k, auto fold) {
        if (carries && has) value[k] = decltype(fold)::join(waiting[level][k], value[k]);
        else if (carries) waiting[level][k] = value[k];
      });
      carries = carries && has;
    }
  }
  __device__ __forceinline__ void take(V (&value)[PHASE::RESULTS]) const {
    PHASE::each([&](int k, auto) { value[k] = waiting[LEVELS][k]; });
  }
};

// Runs a phase for the 32 threads of a warp of a team, one after the other, in the order in which they are joined.
template <class PHASE, class TEAM, class ROW, class UNITS, class VALUES, typename V>
__device__ __forceinline__ void walk(const TEAM& team, const ROW& row, const UNITS& units, const VALUES& p,
                                     V (&total)[PHASE::RESULTS]) {
  const int first = team.places.lane * WARP;
  TEAM of_thread = team;
  InTurn<PHASE, V> joined;
#pragma unroll 1
  for (int i = 0; i < WARP; ++i) {
    of_thread.places.lane = first + reversed(i);
    V own[PHASE::RESULTS];
    if constexpr (!PHASE::STORES) TEAM::template clear<PHASE>(own);
    of_thread.template go_over<PHASE>(row, units, p, own);
    if constexpr (!PHASE::STORES) joined.put(i, own);
  }
  if constexpr (!PHASE::STORES) joined.take(total);
}

// Joins a value of each walker, for each of the rows that a warp's lanes have, as a team of so many threads joins its
// own; the first warp computes what follows once a row.
template <class PHASE, class SHAPE, class F, typename V>
__device__ __forceinline__ void join_columns(V (&value)[PHASE::RESULTS], typename F::Values& p,
                                             ColumnRoom<F>& room, int threads) {
  const int lane = threadIdx.x % WARP, walker = threadIdx.x / WARP, walkers = blockDim.x / WARP;
  PHASE::each([&](int k, auto fold) {
    using FOLD = decltype(fold);
    __syncthreads();
    room.of_walker[walker][lane] = value[k];
    __syncthreads();
    if (walker > 0) return;
    if (SHAPE::walks) value[k] = V(joined_column<FOLD, WARP>(room.of_walker, walkers));
    else if (threads == MOST_WALKERS) value[k] = V(joined_column<FOLD, MOST_WALKERS>(room.of_walker, walkers));
    else value[k] = V(joined_column<FOLD, LEAST_TEAM>(room.of_walker, walkers));
  });
  if (walker == 0) {
    finish_row<PHASE>(value, p);
    PHASE::take(room.values[lane], p);
  }
  __syncthreads();
  PHASE::take(p, room.values[lane]);
}

// Joins a value of each of a team's threads, which are lanes of a warp, or a block; and computes what follows once a
// row: in a block, by one warp for all. It is the block's join number `turn`.
template <class PHASE, class SHAPE, class F, class ROOM, typename V>
__device__ __forceinline__ void join_team(V (&value)[PHASE::RESULTS], typename F::Values& p, ROOM& room,
                                          int threads, int turn) {
  if constexpr (SHAPE::apart) {
    join_columns<PHASE, SHAPE, F>(value, p, room, threads);
  } else if constexpr (SHAPE::threads <= WARP) {
    join_lanes<PHASE>(value, threads);
    finish_row<PHASE>(value, p);
  } else {
    join_warps<PHASE>(value, room);
    join_blocks<PHASE, F>(value, room, turn);
    if (threadIdx.x < WARP) {
      finish_row<PHASE>(value, p);
      if (threadIdx.x == 0) PHASE::take(room.values, p);
    }
    __syncthreads();
    PHASE::take(p, room.values);
  }
}

}  // namespace
}  // namespace fusegen
