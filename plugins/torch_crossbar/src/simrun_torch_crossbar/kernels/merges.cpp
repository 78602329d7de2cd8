// Two blocks become one, on the CPU: assembly, a blocked Cholesky of couplings, and one symmetric
// update. Conventions and guarantees are those of blocks.cpp.
//
// With K_ci the couplings of eliminated node c, P_ci = K_ci / sqrt(sum_i K_ci) is (minus) row c of
// the Cholesky factor, and the update is K += P^T P: a matrix product of numbers that are never
// negative. P is packed for the product as it is computed, in strips of NR nodes, all rows of a
// strip after one another; NR is a multiple of MR, so that the strips serve both factors.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "threads.h"

#if defined(__AVX512F__)
#define CROSSBAR_BYTES 64
#define CROSSBAR_MR 8
#elif defined(__AVX__)
#define CROSSBAR_BYTES 32
#define CROSSBAR_MR 4
#else
#define CROSSBAR_BYTES 16
#define CROSSBAR_MR 4
#endif

// Left alone, gcc reads a row of b from memory once for each row of a: loads become the limit.
#ifdef __x86_64__
#define CROSSBAR_IN_REGISTER(v) asm("" : "+v"(v))
#else
#define CROSSBAR_IN_REGISTER(v) ((void)0)
#endif

namespace {

// A tile of a product has MR x 2 vectors. (3 vectors would load less, but gcc then reads them
// from memory once for each row.)
constexpr int MR = CROSSBAR_MR, VECTORS = 2;
constexpr int KC = 256;           // rows of P that a product keeps in cache
constexpr int MC = 96, NC = 192;  // rows and columns of one task of the update

template <class T>
struct Size {
  typedef T vector __attribute__((vector_size(CROSSBAR_BYTES)));
  typedef T loose __attribute__((vector_size(CROSSBAR_BYTES), aligned(sizeof(T)), may_alias));
  static constexpr int lanes = CROSSBAR_BYTES / sizeof(T);
  static constexpr int NR = VECTORS * lanes;
  static constexpr int NB = NR > 16 ? 96 : 48;  // nodes eliminated at once
  static_assert(NR % MR == 0 && NB % NR == 0 && MC % NR == 0 && NC % MC == 0, "");
};

int up(int n, int to) { return (n + to - 1) / to * to; }

template <bool PARALLEL, class Body>
void each(int count, int threads, Body body) {
  if constexpr (PARALLEL) {
    CrossbarThreads::each(count, threads, [&](int64_t i, int) { body(int(i)); });
  } else {
    (void)threads;
    for (int i = 0; i < count; ++i) body(i);
  }
}

// sum (MR x NR) = a^T b over depth rows, of lengths lda and ldb; b aligned or not.
template <class T>
inline void product(int depth, const T* __restrict__ a, int64_t lda, const T* __restrict__ b,
                    int64_t ldb, typename Size<T>::vector (&sum)[MR][VECTORS]) {
  typename Size<T>::vector s[MR][VECTORS] = {};
  for (int k = 0; k < depth; ++k, a += lda, b += ldb) {
    typename Size<T>::vector row[VECTORS];
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; ++v) {
      row[v] = *reinterpret_cast<const typename Size<T>::loose*>(b + v * Size<T>::lanes);
      CROSSBAR_IN_REGISTER(row[v]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < VECTORS; ++v) s[i][v] += a[i] * row[v];
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; ++v) sum[i][v] = s[i][v];
}

// The couplings of a block: the strict lower triangle, row by row. Where row i begins:
inline int64_t row_start(int64_t i) { return i * (i - 1) / 2; }

template <class T>
inline void add(T* to, const typename Size<T>::vector (&sum)[VECTORS]) {
  for (int v = 0; v < VECTORS; ++v)
    *reinterpret_cast<typename Size<T>::loose*>(to + v * Size<T>::lanes) += sum[v];
}

// Sum in a fixed order, one partial sum a lane.
template <class T>
T total(const T* x, int n) {
  typedef Size<T> S;
  typename S::vector partial[2] = {};
  int i = 0;
  for (; i + 2 * S::lanes <= n; i += 2 * S::lanes)
    for (int v = 0; v < 2; ++v)
      partial[v] += *reinterpret_cast<const typename S::loose*>(x + i + v * S::lanes);
  partial[0] += partial[1];
  T sum = 0;
  for (int l = 0; l < S::lanes; ++l) sum += partial[0][l];
  for (; i < n; ++i) sum += x[i];
  return sum;
}

// All blocks of a front, as Python describes them; see cpu.py. The front's nodes are the eliminated
// ones, then the ports: floating, drivers, grounds.
template <class T>
struct Merge {
  const T *a, *b;      // the children: block q of out is made of block q of each
  T* out;
  int64_t count;       // of blocks
  int eliminated, floating, drivers, grounds;
  int ports[2];        // of the children
  int runs[2];         // of consecutive ports that are consecutive in the front
  const int* run[2];   // first port, first node, length
  const int* port[2];  // of each node of the front, or -1
};

template <class T>
struct Work {
  static constexpr int NR = Size<T>::NR;
  int e, k, first;  // first: the column of F where the ports begin
  int64_t ld;
  T *F, *P;

  Work(int e, int k) : e(e), k(k), first(up(e, NR)), ld(first + up(k, NR)) {
    if (ld * sizeof(T) % 1024 == 0) ld += NR;  // rows that don't share their places in the cache
  }
  int64_t panel() const { return (up(e, MR) * ld + 15) / 16 * 16; }
  int64_t size() const { return panel() + (ld * e + 15) / 16 * 16; }
  void place(T* at) { F = at, P = F + panel(); }
  int column(int node) const { return node < e ? node : first + node - e; }
  // Where row c of P is, from column on (a multiple of MR).
  T* packed(int c, int column) const {
    return P + (int64_t(column / NR) * e + c) * NR + column % NR;
  }
};

// The coupling of nodes x < y is F(x, y) if x is eliminated, else in row y of out. A child has each
// coupling once: a run of a child's row goes to a row of the front, or to a column.
template <class T, bool PARALLEL>
void assemble(const Merge<T>& m, const T* const child[2], T* out, const Work<T>& w, int threads) {
  const int e = w.e, k = w.k, chunk = 16, parts = (e + k + chunk - 1) / chunk;
  const auto direct = [&](int run, int node) { return node < e ? run > node : run >= e && run < node; };
  each<PARALLEL>(parts, threads, [&](int part) {
    // Long rows of out first.
    const int end = e + k - part * chunk;
    for (int node = std::max(0, end - chunk); node < end; ++node) {
      T* const row = node < e ? w.F + node * w.ld : out + row_start(node - e);
      std::memset(row, 0, (node < e ? w.ld : node - e) * sizeof(T));
      for (int side = 0; side < 2; ++side) {
        const int p = m.port[side][node];
        if (p < 0) continue;
        const T* const from = child[side] + row_start(p);
        for (const int *r = m.run[side], *last = r + 3 * m.runs[side]; r < last && r[0] < p; r += 3) {
          if (!direct(r[1], node)) continue;
          const T* __restrict__ x = from + r[0];
          T* __restrict__ y = row + (node < e ? w.column(r[1]) : r[1] - e);
          const int n = std::min(r[2], p - r[0]);
          for (int j = 0; j < n; ++j) y[j] += x[j];
        }
      }
    }
  });
  if (up(e, MR) > e) std::memset(w.F + e * w.ld, 0, (up(e, MR) - e) * w.ld * sizeof(T));
  // Square by square, so that neither side of the transposition strays over many pages.
  each<PARALLEL>(parts, threads, [&](int part) {
    const int begin = part * chunk, end = std::min(begin + chunk, e + k);
    for (int side = 0; side < 2; ++side)
      for (const int *r = m.run[side], *last = r + 3 * m.runs[side]; r < last; r += 3)
        for (int first = 0; first < r[2]; first += chunk)
          for (int node = begin; node < end; ++node) {
            const int p = m.port[side][node];
            if (p <= r[0] + first || direct(r[1], node)) continue;
            const T* __restrict__ x = child[side] + row_start(p) + r[0];
            const int stop = std::min(std::min(r[2], p - r[0]), first + chunk);
            if (r[1] < e) {
              T* __restrict__ y = w.F + r[1] * w.ld + w.column(node);
              for (int j = first; j < stop; ++j) y[j * w.ld] += x[j];
            } else {
              for (int j = first; j < stop; ++j) out[row_start(r[1] - e + j) + node - e] += x[j];
            }
          }
  });
}

// The pivots of nb nodes. F: couplings among them (upper triangle), row length ld; outside: of
// each to all other nodes that remain; solve: the inverse of the Cholesky factor, transposed, in
// strips of MR columns.
template <class T>
void pivots(const T* F, int64_t ld, int nb, T* outside, T* solve) {
  constexpr int NB = Size<T>::NB;
  T D[NB][NB], inverse[NB][NB], column[NB], sum[NB];
  for (int i = 0; i < nb; ++i)
    for (int c = 0; c < i; ++c) D[i][c] = F[c * ld + i];
  for (int c = 0; c < nb; ++c) {
    T all = outside[c];
    for (int i = c + 1; i < nb; ++i) all += D[i][c];
    const T reciprocal = T(1) / std::sqrt(all), rest = outside[c] * reciprocal;
    for (int i = c + 1; i < nb; ++i) {
      column[i] = D[i][c] *= reciprocal;
      outside[i] += rest * column[i];
    }
    for (int i = c + 2; i < nb; ++i) {
      const T value = column[i];
      for (int j = c + 1; j < i; ++j) D[i][j] += value * column[j];
    }
    for (int l = 0; l < nb; ++l) sum[l] = 0;
    for (int t = 0; t < c; ++t) {
      const T value = D[c][t];
      for (int l = 0; l <= t; ++l) sum[l] += value * inverse[t][l];
    }
    for (int l = 0; l < nb; ++l) inverse[c][l] = l < c ? sum[l] * reciprocal : T(0);
    inverse[c][c] = reciprocal;
  }
  for (int c = 0; c < nb; c += MR)
    for (int l = 0; l < nb; ++l)
      for (int i = 0; i < MR; ++i) solve[c * nb + l * MR + i] = c + i < nb ? inverse[c + i][l] : T(0);
}

// Leaves P, in strips, for all columns right of its own diagonal.
template <class T, bool PARALLEL>
void factor(const Work<T>& w, int threads) {
  typedef Size<T> S;
  constexpr int NR = S::NR, NB = S::NB;
  const int e = w.e;
  for (int j0 = 0; j0 < e; j0 += NB) {
    const int nb = std::min(NB, e - j0), next = j0 + nb;
    if (j0)
      each<PARALLEL>(int(w.first + up(w.k, NR) - j0) / NR, threads, [&](int strip) {
        const int column = j0 + strip * NR;
        for (int d = 0; d < j0; d += KC)
          for (int c = j0; c < next; c += MR) {
            typename S::vector sum[MR][VECTORS];
            product<T>(std::min(KC, j0 - d), w.packed(d, c), NR, w.packed(d, column), NR, sum);
            for (int i = 0; i < MR; ++i) add<T>(w.F + (c + i) * w.ld + column, sum[i]);
          }
      });
    T outside[NB];
    for (int c = 0; c < nb; ++c) {
      const T* const row = w.F + (j0 + c) * w.ld;
      outside[c] = total(row + next, e - next) + total(row + w.first, w.k);
    }
    alignas(64) T solve[(NB + MR) * NB];
    pivots<T>(w.F + j0 * w.ld + j0, w.ld, nb, outside, solve);
    const int right = next < e ? next : w.first;
    each<PARALLEL>(int(w.first + up(w.k, NR) - right) / NR, threads, [&](int strip) {
      const int column = right + strip * NR;
      T* const P = w.packed(j0, column);
      for (int c = 0; c < nb; c += MR) {
        typename S::vector sum[MR][VECTORS];
        product<T>(std::min(nb, c + MR), solve + c * nb, MR, w.F + j0 * w.ld + column, w.ld, sum);
        for (int i = 0; i < std::min(MR, nb - c); ++i)
          for (int v = 0; v < VECTORS; ++v)
            *reinterpret_cast<typename S::loose*>(P + (c + i) * NR + v * S::lanes) = sum[i][v];
      }
    });
  }
}

// out += P^T P, except among drivers and among grounds.
template <class T, bool PARALLEL>
void update(const Merge<T>& m, T* out, const Work<T>& w, int threads) {
  typedef Size<T> S;
  constexpr int NR = S::NR;
  const int k = w.k, f = m.floating, fa = f + m.drivers;
  const int down = (k + MC - 1) / MC, across = (k + NC - 1) / NC;
  each<PARALLEL>(down * across, threads, [&](int task) {
    const int i0 = (down - 1 - task / across) * MC, j0 = task % across * NC;
    const int i1 = std::min(i0 + MC, k), j1 = std::min(j0 + NC, i1 - 1);
    for (int d = 0; d < w.e; d += KC)
      for (int j = j0; j < j1; j += NR)
        for (int i = i0; i < i1; i += MR) {
          const int last = std::min(i + MR, k);
          if (j >= last - 1 || (i >= f && last <= fa && j >= f) || (i >= fa && j >= fa)) continue;
          // Neither rows nor columns follow on in memory: no hardware foresees these.
          for (int row = i; row < last; ++row) {
            __builtin_prefetch(out + row_start(row) + j, 1);
            __builtin_prefetch(out + row_start(row) + j + NR - 1, 1);
          }
          typename S::vector sum[MR][VECTORS];
          product<T>(std::min(KC, w.e - d), w.packed(d, w.first + i), NR, w.packed(d, w.first + j), NR,
                     sum);
          for (int row = i; row < last; ++row) {
            T* const to = out + row_start(row) + j;
            if (j + NR <= row)
              add<T>(to, sum[row - i]);
            else
              for (int c = 0; c < row - j; ++c) to[c] += sum[row - i][c / S::lanes][c % S::lanes];
          }
        }
  });
}

template <class T, bool PARALLEL>
void merge(const Merge<T>& m, int64_t q, T* work, int threads) {
  Work<T> w(m.eliminated, m.floating + m.drivers + m.grounds);
  w.place(work);
  const T* const child[2] = {m.a + q * row_start(m.ports[0]), m.b + q * row_start(m.ports[1])};
  T* const out = m.out + q * row_start(w.k);
  assemble<T, PARALLEL>(m, child, out, w, threads);
  factor<T, PARALLEL>(w, threads);
  update<T, PARALLEL>(m, out, w, threads);
}

// A level: fronts that don't depend on one another, the most work first. All threads share each
// merge where merges are few and large, else each thread has its own; the results are the same.
// work: stride numbers for each thread, or for all together.
template <class T>
void merge_level(const Merge<T>* m, int fronts, bool together, T* work, int64_t stride, int threads) {
  if (together) {
    for (int f = 0; f < fronts; ++f)
      for (int64_t q = 0; q < m[f].count; ++q) merge<T, true>(m[f], q, work, threads);
    return;
  }
  int64_t count = 0;
  for (int f = 0; f < fronts; ++f) count += m[f].count;
  CrossbarThreads::each(count, threads, [&](int64_t q, int thread) {
    int f = 0;
    for (; q >= m[f].count; ++f) q -= m[f].count;
    merge<T, false>(m[f], q, work + thread * stride, 1);
  });
}

}  // namespace

extern "C" {
void crossbar_merges_f32(const Merge<float>* m, int fronts, int together, float* work,
                         int64_t stride, int threads) {
  merge_level<float>(m, fronts, together, work, stride, threads);
}
void crossbar_merges_f64(const Merge<double>* m, int fronts, int together, double* work,
                         int64_t stride, int threads) {
  merge_level<double>(m, fronts, together, work, stride, threads);
}
// Numbers of work that one merge needs.
int64_t crossbar_merge_work(int eliminated, int ports, int bytes) {
  return bytes == 4 ? Work<float>(eliminated, ports).size() : Work<double>(eliminated, ports).size();
}
}
