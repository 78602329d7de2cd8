// Two blocks become one, on the CPU: assembly, a blocked Cholesky of couplings, and one symmetric
// update. Conventions and guarantees are those of blocks.cpp.
//
// With K_ic the couplings of eliminated node c, P_ic = K_ic / sqrt(sum_i K_ic) is (minus) the
// Cholesky factor's column, and the update is K += P P^T: a matrix product of numbers that are
// never negative. P is kept packed for the product as it is computed: in strips of MR rows and
// in strips of NR rows, all columns of a strip after one another.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#define CROSSBAR_BYTES 64
#define CROSSBAR_MR 12
#elif defined(__AVX__)
#define CROSSBAR_BYTES 32
#define CROSSBAR_MR 6
#else
#define CROSSBAR_BYTES 16
#define CROSSBAR_MR 6
#endif

namespace {

template <class T>
struct Size {
  typedef T vector __attribute__((vector_size(CROSSBAR_BYTES)));
  typedef T loose __attribute__((vector_size(CROSSBAR_BYTES), aligned(sizeof(T)), may_alias));
  static constexpr int lanes = CROSSBAR_BYTES / sizeof(T);
  static constexpr int MR = CROSSBAR_MR, NR = 2 * lanes;  // a tile of the product: all registers
  static constexpr int NB = NR <= 16 ? 48 : 96;           // columns eliminated at once
  static constexpr int KC = 256;                          // columns of a product in cache
  static constexpr int MC = 96, NC = 192;                 // rows and columns of one thread's task
  static_assert(NB % MR == 0 && NB % NR == 0 && MC % MR == 0 && NC % NR == 0, "");
};

// One step of merging, as Python describes it; see native.py.
struct Merge {
  int eliminated, floating, drivers, grounds;
  int ports[2];        // of the children
  int runs[2];         // of consecutive ports that are consecutive in the front
  const int* run[2];   // first port, first node of the front, length
};

int up(int n, int to) { return (n + to - 1) / to * to; }

template <bool PARALLEL, class Body>
void each(int count, int threads, Body body) {
  if constexpr (PARALLEL) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int i = 0; i < count; ++i) body(i);
  } else {
    for (int i = 0; i < count; ++i) body(i);
  }
}

// tile (MR x NR) = sum over depth of a strip of MR rows times a strip of NR rows.
template <class T>
inline void product(int depth, const T* __restrict__ a, const T* __restrict__ b,
                    typename Size<T>::vector (&sum)[CROSSBAR_MR][2]) {
  typedef typename Size<T>::vector V;
  V s[CROSSBAR_MR][2] = {};
  for (int k = 0; k < depth; ++k) {
    const V b0 = *reinterpret_cast<const V*>(b), b1 = *reinterpret_cast<const V*>(b + Size<T>::lanes);
#pragma GCC unroll 12
    for (int i = 0; i < CROSSBAR_MR; ++i) {
      s[i][0] += a[i] * b0;
      s[i][1] += a[i] * b1;
    }
    a += CROSSBAR_MR;
    b += Size<T>::NR;
  }
#pragma GCC unroll 12
  for (int i = 0; i < CROSSBAR_MR; ++i) sum[i][0] = s[i][0], sum[i][1] = s[i][1];
}

// c (rows x columns at most MR x NR, row length ldc) += a b^T
template <class T>
inline void add_product(int depth, const T* a, const T* b, T* c, int64_t ldc, int rows, int columns) {
  typedef Size<T> S;
  typename S::vector sum[S::MR][2];
  product<T>(depth, a, b, sum);
  if (rows == S::MR && columns == S::NR) {
#pragma GCC unroll 12
    for (int i = 0; i < S::MR; ++i, c += ldc) {
      *reinterpret_cast<typename S::loose*>(c) += sum[i][0];
      *reinterpret_cast<typename S::loose*>(c + S::lanes) += sum[i][1];
    }
  } else {
    for (int i = 0; i < rows; ++i, c += ldc)
      for (int j = 0; j < columns; ++j) c[j] += sum[i][j / S::lanes][j % S::lanes];
  }
}

// The pivots of NB or fewer columns. D: couplings among them (strict lower triangle, becomes P);
// outside: each column's couplings to all other remaining nodes; inverse (row length NB, lower):
// of the Cholesky factor.
template <class T>
void pivots(T* D, int64_t ldd, int nb, T* outside, T* inverse) {
  constexpr int NB = Size<T>::NB;
  T column[NB], total[NB];
  for (int c = 0; c < nb; ++c) {
    T sum = outside[c];
    for (int i = c + 1; i < nb; ++i) sum += D[i * ldd + c];
    const T reciprocal = T(1) / std::sqrt(sum), rest = outside[c] * reciprocal;
    for (int i = c + 1; i < nb; ++i) {
      column[i] = D[i * ldd + c] *= reciprocal;
      outside[i] += rest * column[i];
    }
    for (int i = c + 2; i < nb; ++i) {
      T* __restrict__ row = D + i * ldd;
      const T value = column[i];
      for (int j = c + 1; j < i; ++j) row[j] += value * column[j];
    }
    for (int l = 0; l < NB; ++l) total[l] = 0;
    for (int t = 0; t < c; ++t) {
      const T value = D[c * ldd + t];
      const T* __restrict__ row = inverse + t * NB;
      for (int l = 0; l <= t; ++l) total[l] += value * row[l];
    }
    for (int l = 0; l < NB; ++l) inverse[c * NB + l] = l < c ? total[l] * reciprocal : T(0);
    inverse[c * NB + c] = reciprocal;
  }
}

template <class T>
struct Work {
  // Rows: the eliminated nodes, padded to whole strips, then the ports, likewise.
  int e, k, rows_e, rows, ld;
  T *F, *strips_m, *strips_n, *inverse;

  static int padded(int n) { return std::max(up(n, Size<T>::MR), up(n, Size<T>::NR)); }
  Work(int e, int k) : e(e), k(k), rows_e(padded(e)), rows(rows_e + padded(k)), ld(up(e, Size<T>::NR)) {}
  int64_t panel() const { return up(rows * ld, 64 / sizeof(T)); }
  int64_t strips() const { return up((rows + 2 * Size<T>::NR) * e, 64 / sizeof(T)); }
  int64_t size() const { return panel() + 2 * strips() + Size<T>::NB * Size<T>::NB; }
  void place(T* at) {
    F = at;
    strips_m = F + panel();
    strips_n = strips_m + strips();
    inverse = strips_n + strips();
  }
  // A strip begins at a row that is a multiple of MR (NR) from 0 or from rows_e.
  T* strip_m(int row) const {
    return row < rows_e ? strips_m + int64_t(row) * e
                        : strips_m + (int64_t(up(rows_e, Size<T>::MR)) + row - rows_e) * e;
  }
  T* strip_n(int row) const {
    return row < rows_e ? strips_n + int64_t(row) * e
                        : strips_n + (int64_t(up(rows_e, Size<T>::NR)) + row - rows_e) * e;
  }
};

template <class T, bool PARALLEL>
void assemble(const Merge& m, const T* const child[2], T* out, const Work<T>& w, int threads) {
  const int e = m.eliminated;
  const int64_t k = w.k;
  each<PARALLEL>(PARALLEL ? 4 * threads : 1, threads, [&](int part) {
    const int parts = PARALLEL ? 4 * threads : 1;
    const int64_t f0 = int64_t(w.rows) * part / parts, f1 = int64_t(w.rows) * (part + 1) / parts;
    std::memset(w.F + f0 * w.ld, 0, (f1 - f0) * w.ld * sizeof(T));
    const int64_t k0 = k * part / parts, k1 = k * (part + 1) / parts;
    std::memset(out + k0 * k, 0, (k1 - k0) * k * sizeof(T));
  });
  for (int side = 0; side < 2; ++side) {
    const int64_t ports = m.ports[side];
    const int* const run = m.run[side];
    const int runs = m.runs[side];
    for (int r = 0; r < runs; ++r) {
      const int from = run[3 * r], to = run[3 * r + 1], length = run[3 * r + 2];
      const int chunk = 32, chunks = (length + chunk - 1) / chunk;
      each<PARALLEL>(chunks, threads, [&](int part) {
        for (int i = part * chunk; i < std::min(length, (part + 1) * chunk); ++i) {
          const T* __restrict__ row = child[side] + (from + i) * ports;
          const int node = to + i;
          T* const panel = w.F + int64_t(node < e ? node : w.rows_e + node - e) * w.ld;
          for (int c = 0; c < runs; ++c) {
            const int column = run[3 * c], at = run[3 * c + 1], n = run[3 * c + 2];
            T* __restrict__ target;
            if (at < e)
              target = panel + at;
            else if (node >= e && at <= to)
              target = out + (node - e) * k + (at - e);
            else
              continue;
            for (int j = 0; j < n; ++j) target[j] += row[column + j];
          }
        }
      });
    }
  }
}

// Eliminate: leaves P in strips of both kinds.
template <class T, bool PARALLEL>
void factor(const Work<T>& w, int threads) {
  typedef Size<T> S;
  const int e = w.e;
  for (int j0 = 0; j0 < e; j0 += S::NB) {
    const int nb = std::min<int>(S::NB, e - j0), width = up(nb, S::NR), next = j0 + nb;
    // Rows from j0 on, as strips; those of the ports begin at rows_e.
    const int strips_e = (up(e, S::MR) - j0) / S::MR, strips_k = up(w.k, S::MR) / S::MR;
    const auto row_of = [&](int s) {
      return s < strips_e ? j0 + s * S::MR : w.rows_e + (s - strips_e) * S::MR;
    };
    if (j0)
      each<PARALLEL>((strips_e + strips_k + 7) / 8, threads, [&](int part) {
        for (int d = 0; d < j0; d += S::KC)
          for (int c = 0; c < width; c += S::NR)
            for (int s = part * 8; s < std::min(part * 8 + 8, strips_e + strips_k); ++s) {
              const int row = row_of(s);
              add_product<T>(std::min<int>(S::KC, j0 - d), w.strip_m(row) + int64_t(d) * S::MR,
                             w.strip_n(j0 + c) + int64_t(d) * S::NR,
                             w.F + int64_t(row) * w.ld + j0 + c, w.ld, S::MR, S::NR);
            }
      });
    T outside[S::NB] = {};
    const auto sum_rows = [&](int begin, int end) {
      for (int i = begin; i < end; ++i) {
        const T* row = w.F + int64_t(i) * w.ld + j0;
        for (int c = 0; c < nb; ++c) outside[c] += row[c];
      }
    };
    sum_rows(next, e);
    sum_rows(w.rows_e, w.rows_e + w.k);
    pivots<T>(w.F + int64_t(j0) * w.ld + j0, w.ld, nb, outside, w.inverse);
    alignas(64) T solve[S::NB * S::NB];  // the inverse in strips of NR rows
    for (int c = 0; c < width; c += S::NR)
      for (int l = 0; l < nb; ++l)
        for (int j = 0; j < S::NR; ++j)
          solve[(c * nb) + l * S::NR + j] = c + j < nb ? w.inverse[(c + j) * S::NB + l] : T(0);
    const int first = (next - j0 + S::MR - 1) / S::MR;  // whole strips below the pivots
    const int skip = next < e ? first : strips_e;
    each<PARALLEL>((strips_e - skip + strips_k + 7) / 8, threads, [&](int part) {
      for (int s = skip + part * 8; s < std::min(skip + part * 8 + 8, strips_e + strips_k); ++s) {
        const int row = row_of(s);
        T* const F = w.F + int64_t(row) * w.ld + j0;
        alignas(64) T before[S::NB * S::MR];
        for (int l = 0; l < nb; ++l)
          for (int i = 0; i < S::MR; ++i) before[l * S::MR + i] = F[int64_t(i) * w.ld + l];
        T* const strip = w.strip_m(row) + int64_t(j0) * S::MR;
        for (int c = 0; c < width; c += S::NR) {
          typename S::vector sum[S::MR][2];
          product<T>(nb, before, solve + c * nb, sum);
          for (int i = 0; i < S::MR; ++i) {
            *reinterpret_cast<typename S::loose*>(F + int64_t(i) * w.ld + c) = sum[i][0];
            *reinterpret_cast<typename S::loose*>(F + int64_t(i) * w.ld + c + S::lanes) = sum[i][1];
          }
        }
        for (int l = 0; l < nb; ++l)
          for (int i = 0; i < S::MR; ++i) strip[l * S::MR + i] = F[int64_t(i) * w.ld + l];
      }
    });
    // The same in strips of NR rows, for what the product takes from the other side.
    const int wide_e = next < e ? (up(e, S::NR) - next) / S::NR : 0, wide_k = up(w.k, S::NR) / S::NR;
    each<PARALLEL>((wide_e + wide_k + 7) / 8, threads, [&](int part) {
      for (int s = part * 8; s < std::min(part * 8 + 8, wide_e + wide_k); ++s) {
        const int row = s < wide_e ? next + s * S::NR : w.rows_e + (s - wide_e) * S::NR;
        const T* const F = w.F + int64_t(row) * w.ld + j0;
        T* const strip = w.strip_n(row) + int64_t(j0) * S::NR;
        for (int l = 0; l < nb; ++l)
          for (int i = 0; i < S::NR; ++i) strip[l * S::NR + i] = F[int64_t(i) * w.ld + l];
      }
    });
  }
}

// out += P P^T below the diagonal, except among drivers and among grounds; then mirrored.
template <class T, bool PARALLEL>
void update(const Merge& m, T* out, const Work<T>& w, int threads) {
  typedef Size<T> S;
  const int k = w.k, f = m.floating, fa = f + m.drivers;
  const int down = (k + S::MC - 1) / S::MC, across = (k + S::NC - 1) / S::NC;
  each<PARALLEL>(down * across, threads, [&](int task) {
    const int i0 = (down - 1 - task / across) * S::MC, j0 = task % across * S::NC;
    const int i1 = std::min(i0 + S::MC, k), j1 = std::min(j0 + S::NC, k);
    if (j0 >= i1) return;
    for (int d = 0; d < w.e; d += S::KC)
      for (int j = j0; j < j1; j += S::NR)
        for (int i = i0; i < i1; i += S::MR) {
          const int last = std::min(i + S::MR, k);
          if (j >= last || (i >= f && last <= fa && j >= f) || (i >= fa && j >= fa)) continue;
          add_product<T>(std::min<int>(S::KC, w.e - d), w.strip_m(w.rows_e + i) + int64_t(d) * S::MR,
                         w.strip_n(w.rows_e + j) + int64_t(d) * S::NR, out + int64_t(i) * k + j, k,
                         last - i, std::min<int>(S::NR, k - j));
        }
    for (int j = j0; j < j1; j += 8)
      for (int i = std::max(i0, j); i < i1; ++i)
        for (int c = j; c < std::min(std::min(j + 8, j1), i); ++c)
          out[int64_t(c) * k + i] = out[int64_t(i) * k + c];
    for (int i = std::max(i0, j0); i < std::min(i1, j1); ++i) out[int64_t(i) * k + i] = 0;
  });
}

template <class T, bool PARALLEL>
void merge(const Merge& m, const T* a, const T* b, T* out, const Work<T>& w, int threads) {
  const T* const child[2] = {a, b};
  assemble<T, PARALLEL>(m, child, out, w, threads);
  factor<T, PARALLEL>(w, threads);
  update<T, PARALLEL>(m, out, w, threads);
}

}  // namespace

#include <omp.h>

namespace {

// A batch: block q of out is made of block q of a and block q of b. All threads work at one merge
// where merges are few and large, else each at its own; the results are the same.
template <class T>
void merge_batch(const Merge& m, int64_t count, bool together, const T* a, const T* b, T* out,
                 T* work, int threads) {
  const int64_t k = m.floating + m.drivers + m.grounds;
  const int64_t size_a = int64_t(m.ports[0]) * m.ports[0], size_b = int64_t(m.ports[1]) * m.ports[1];
  Work<T> shared(m.eliminated, int(k));
  if (together) {
    shared.place(work);
    for (int64_t q = 0; q < count; ++q)
      merge<T, true>(m, a + q * size_a, b + q * size_b, out + q * k * k, shared, threads);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    Work<T> own(m.eliminated, int(k));
    own.place(work + omp_get_thread_num() * own.size());
#pragma omp for schedule(dynamic, 1)
    for (int64_t q = 0; q < count; ++q)
      merge<T, false>(m, a + q * size_a, b + q * size_b, out + q * k * k, own, 1);
  }
}

}  // namespace

extern "C" {
void crossbar_merge_f32(const Merge* m, int64_t count, int together, const float* a, const float* b,
                        float* out, float* work, int threads) {
  merge_batch<float>(*m, count, together, a, b, out, work, threads);
}
void crossbar_merge_f64(const Merge* m, int64_t count, int together, const double* a,
                        const double* b, double* out, double* work, int threads) {
  merge_batch<double>(*m, count, together, a, b, out, work, threads);
}
// Numbers of work that one thread needs.
int64_t crossbar_merge_work(int eliminated, int ports, int bytes) {
  return bytes == 4 ? Work<float>(eliminated, ports).size() : Work<double>(eliminated, ports).size();
}
}
