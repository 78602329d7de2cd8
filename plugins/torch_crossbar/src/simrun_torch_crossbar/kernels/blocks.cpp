// Blocks from their devices: one source for the CPU (C++17) and for CUDA (nvcc, NVRTC).
//
// Every number here is a conductance, and none is negative. A block is its couplings K between
// ports; what a node is joined to in all, the diagonal of the admittance matrix, is never stored
// but summed where a pivot needs it. Elimination of node c is then the star-mesh transform,
// K_ij += K_ic K_jc / sum_i K_ic: nothing is ever subtracted, so that all of W is accurate entry
// by entry however far apart wires and devices are, in float32 too (Grassmann, Taksar and
// Heyman, Operations Research 33 (1985) 1107).
//
// The result of a block depends on that block alone, bit for bit: neither on the number of
// threads nor on its neighbours in the batch. Work is divided among threads by elements of the
// result, never along a sum.

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define CROSSBAR_CUDA 1
#define CROSSBAR_INLINE __device__ __forceinline__
#else
#define CROSSBAR_INLINE static inline
#include <algorithm>
#include <cstdint>

#include "threads.h"
#endif

// A program, made in Python (program.py), says which devices and merges a block consists of:
//   program[0] operations, then one record of RECORD integers each:
//     device: 0, out slot, e, n, row, column, entry(L,u), entry(u,d), entry(d,B), 0, wires, 0
//     merge:  1, out slot, e, n, slot A, entries A, table A, slot B, entries B, table B, 0, 0
// Couplings are the strict lower triangle, row by row: entry (i,j), i > j, is i (i-1)/2 + j.
// A table says to which entry of the front each entry of a child is added. Of an n-node front
// the first e nodes are eliminated; the rest goes to the out slot. Bit 0 of wires says that the
// device is in the tile's first column, bit 1 that it is in the last row.

#define CROSSBAR_RECORD 12

CROSSBAR_INLINE int crossbar_row(int i) { return i * (i - 1) / 2; }

#ifdef CROSSBAR_CUDA
// One block of threads makes one block of devices, in shared memory.
#define CROSSBAR_FOR(i, begin, end) \
  for (int i = (begin) + (int)threadIdx.x; i < (end); i += (int)blockDim.x)
#define CROSSBAR_ROWS(i, begin, end) \
  for (int i = (begin) + (int)(threadIdx.x >> 4); i < (end); i += (int)(blockDim.x >> 4))
#define CROSSBAR_COLUMNS(j, begin, end) \
  for (int j = (begin) + (int)(threadIdx.x & 15); j < (end); j += 16)
#define CROSSBAR_SYNC() __syncthreads()
#else
// One thread makes as many blocks at once as a vector has lanes.
#define CROSSBAR_FOR(i, begin, end) for (int i = (begin); i < (end); ++i)
#define CROSSBAR_ROWS CROSSBAR_FOR
#define CROSSBAR_COLUMNS CROSSBAR_FOR
#define CROSSBAR_SYNC() ((void)0)
#endif

// Eliminates nodes c to c+SOME-1 of an n-node front; scaled: SOME columns of memory.
template <int SOME, class T>
CROSSBAR_INLINE void crossbar_eliminate(T* __restrict__ F, T* __restrict__ scaled, int c, int n) {
  for (int s = 0; s < SOME; ++s) {
    CROSSBAR_FOR(i, c + s + 1, n) {
      T* __restrict__ row = F + crossbar_row(i) + c;
      T value = row[s];
      for (int t = 0; t < s; ++t) value += row[t] * scaled[t * n + c + s];
      row[s] = value;
    }
    CROSSBAR_SYNC();
    T total = F[crossbar_row(c + s + 1) + c + s];
    for (int i = c + s + 2; i < n; ++i) total += F[crossbar_row(i) + c + s];
    const T reciprocal = T{} + 1 / total;
    CROSSBAR_FOR(i, c + s + 1, n) scaled[s * n + i] = F[crossbar_row(i) + c + s] * reciprocal;
    CROSSBAR_SYNC();
  }
  CROSSBAR_ROWS(i, c + SOME + 1, n) {
    T* __restrict__ row = F + crossbar_row(i);
    T value[SOME];
    for (int s = 0; s < SOME; ++s) value[s] = row[c + s];
    CROSSBAR_COLUMNS(j, c + SOME, i) {
      T sum = row[j];
      for (int s = 0; s < SOME; ++s) sum += value[s] * scaled[s * n + j];
      row[j] = sum;
    }
  }
  CROSSBAR_SYNC();
}

template <class T, class Load>
CROSSBAR_INLINE const T* crossbar_block(const int* program, const T* wires, Load load, T* slots,
                                        T* front, T* scaled) {
  const int operations = program[0];
  const T* result = slots;
  for (int k = 0; k < operations; ++k) {
    const int* r = program + 1 + k * CROSSBAR_RECORD;
    const int e = r[2], n = r[3], entries = crossbar_row(n);
    CROSSBAR_FOR(t, 0, entries) front[t] = T{};
    CROSSBAR_SYNC();
    if (r[0] == 0) {
      CROSSBAR_FOR(once, 0, 1) {
        if (r[6] >= 0) front[r[6]] += wires[(r[10] & 1) ? 0 : 1];
        front[r[7]] += load(r[4], r[5]);
        if (r[8] >= 0) front[r[8]] += wires[(r[10] & 2) ? 3 : 2];
      }
    } else {
      const T *A = slots + r[4], *B = slots + r[7];
      const int *to_a = program + r[6], *to_b = program + r[9];
      CROSSBAR_FOR(t, 0, r[5]) front[to_a[t]] += A[t];
      CROSSBAR_SYNC();
      CROSSBAR_FOR(t, 0, r[8]) front[to_b[t]] += B[t];
    }
    CROSSBAR_SYNC();
    int c = 0;
    for (; c + 4 <= e; c += 4) crossbar_eliminate<4>(front, scaled, c, n);
    for (; c + 2 <= e; c += 2) crossbar_eliminate<2>(front, scaled, c, n);
    for (; c < e; ++c) crossbar_eliminate<1>(front, scaled, c, n);
    T* out = slots + r[1];
    CROSSBAR_ROWS(i, 1, n - e) {
      const T* from = front + crossbar_row(i + e) + e;
      CROSSBAR_COLUMNS(j, 0, i) out[crossbar_row(i) + j] = from[j];
    }
    CROSSBAR_SYNC();
    result = out;
  }
  return result;
}

#ifdef CROSSBAR_CUDA

template <class T>
__device__ void crossbar_blocks(const int* program, int slots, int entries, int nodes, int ports,
                                const double* ohm, const T* G, const long long* origins,
                                long long blocks, long long tiles, long long tile, long long row,
                                T* out) {
  extern __shared__ double crossbar_shared[];
  T* const slot = reinterpret_cast<T*>(crossbar_shared);
  T* const front = slot + slots;
  T* const scaled = front + entries;
  T* const wires = scaled + 4 * nodes;
  if (threadIdx.x < 4) wires[threadIdx.x] = (T)ohm[threadIdx.x];
  __syncthreads();
  for (long long q = blockIdx.x; q < blocks; q += gridDim.x) {
    const T* g = G + (q % tiles) * tile + origins[q / tiles];
    const T* K = crossbar_block<T>(
        program, wires, [=](int i, int j) { return g[i * row + j]; }, slot, front,
        scaled);
    T* to = out + q * ports * ports;
    CROSSBAR_FOR(t, 0, ports * ports) {
      const int i = t / ports, j = t % ports;
      to[t] = i == j ? T(0) : i > j ? K[crossbar_row(i) + j] : K[crossbar_row(j) + i];
    }
    __syncthreads();
  }
}

#define CROSSBAR_ENTRY(name, T)                                                                    \
  extern "C" __global__ void name(const int* program, int slots, int entries, int nodes,           \
                                  int ports, const double* wires, const T* G,                      \
                                  const long long* origins, long long blocks, long long tiles,     \
                                  long long tile, long long row, T* out) {                         \
    crossbar_blocks<T>(program, slots, entries, nodes, ports, wires, G, origins, blocks, tiles,    \
                       tile, row, out);                                                            \
  }
CROSSBAR_ENTRY(crossbar_blocks_f32, float)
CROSSBAR_ENTRY(crossbar_blocks_f64, double)

#else  // the CPU

#if defined(__AVX512F__)
#define CROSSBAR_BYTES 64
#elif defined(__AVX__)
#define CROSSBAR_BYTES 32
#else
#define CROSSBAR_BYTES 16
#endif

namespace {

template <class T>
struct Vector {
  typedef T type __attribute__((vector_size(CROSSBAR_BYTES)));
  static constexpr int lanes = CROSSBAR_BYTES / sizeof(T);
};

// work: for each thread (slots + entries + 4 * nodes) vectors, aligned to a vector.
template <class T>
void crossbar_blocks(const int* program, int slots, int entries, int nodes, int ports,
                         const double* wires, const T* G, const int64_t* origins, int64_t blocks,
                         int64_t tiles, int64_t tile, int64_t row, T* out, T* work,
                     int threads) {
  typedef typename Vector<T>::type V;
  constexpr int lanes = Vector<T>::lanes;
  const int64_t groups = (blocks + lanes - 1) / lanes;
  V w[4];
  for (int i = 0; i < 4; ++i)
    for (int l = 0; l < lanes; ++l) w[i][l] = (T)wires[i];
  CrossbarThreads::each(groups, threads, [&](int64_t group, int thread) {
    V* slot = reinterpret_cast<V*>(work) + int64_t(thread) * (slots + entries + 4 * nodes);
    V *front = slot + slots, *scaled = front + entries;
    const T* g[lanes];
    const int64_t first = group * lanes, count = std::min<int64_t>(lanes, blocks - first);
    for (int l = 0; l < lanes; ++l) {
      const int64_t q = first + std::min<int64_t>(l, count - 1);
      g[l] = G + (q % tiles) * tile + origins[q / tiles];
    }
    const auto load = [&](int i, int j) {
      V value;
      for (int l = 0; l < lanes; ++l) value[l] = g[l][i * row + j];
      return value;
    };
    const V* K = crossbar_block<V>(program, w, load, slot, front, scaled);
    for (int l = 0; l < count; ++l) {
      T* to = out + (first + l) * crossbar_row(ports);
      for (int t = 0; t < crossbar_row(ports); ++t) to[t] = K[t][l];
    }
  });
}

}  // namespace

#define CROSSBAR_ENTRY(name, T)                                                                    \
  extern "C" void name(const int* program, int slots, int entries, int nodes, int ports,           \
                       const double* wires, const T* G, const int64_t* origins, int64_t blocks,    \
                       int64_t tiles, int64_t tile, int64_t row, T* out, T* work, int threads) {   \
    crossbar_blocks<T>(program, slots, entries, nodes, ports, wires, G, origins, blocks, tiles,    \
                       tile, row, out, work, threads);                                             \
  }
CROSSBAR_ENTRY(crossbar_blocks_f32, float)
CROSSBAR_ENTRY(crossbar_blocks_f64, double)
extern "C" int crossbar_vector_bytes() { return CROSSBAR_BYTES; }
#endif
