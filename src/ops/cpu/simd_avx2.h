// Eight fp32 lanes in an AVX2 register. Included by kernels_avx2.cpp alone, inside its target
// pragma; simd_portable.h defines the same names with the same results, bit for bit.
#pragma once

struct F8 {
  __m256 v;
};

inline F8 load(const float* p) {
  return {_mm256_loadu_ps(p)};
}
inline void store(F8 a, float* p) {
  _mm256_storeu_ps(p, a.v);
}
inline F8 broadcast(float x) {
  return {_mm256_set1_ps(x)};
}
inline F8 zero() {
  return {_mm256_setzero_ps()};
}
inline F8 operator+(F8 a, F8 b) {
  return {_mm256_add_ps(a.v, b.v)};
}
inline F8 operator-(F8 a, F8 b) {
  return {_mm256_sub_ps(a.v, b.v)};
}
inline F8 operator*(F8 a, F8 b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
inline F8 operator/(F8 a, F8 b) {
  return {_mm256_div_ps(a.v, b.v)};
}
// a * b + c, rounded once.
inline F8 fma(F8 a, F8 b, F8 c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
// a > b ? a : b, and a < b ? a : b: the second one when either is NaN.
inline F8 max(F8 a, F8 b) {
  return {_mm256_max_ps(a.v, b.v)};
}
inline F8 min(F8 a, F8 b) {
  return {_mm256_min_ps(a.v, b.v)};
}
inline F8 abs(F8 a) {
  return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)};
}

// The first n (0..8) lanes set.
inline __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
// The first n floats, zeros after them; nothing beyond them is touched.
inline F8 load_first(const float* p, int n) {
  return {_mm256_maskload_ps(p, first_lanes(n))};
}
inline void store_first(F8 a, float* p, int n) {
  _mm256_maskstore_ps(p, first_lanes(n), a.v);
}
// The first n lanes of a, the rest of b.
inline F8 join(F8 a, F8 b, int n) {
  return {_mm256_blendv_ps(b.v, a.v, _mm256_castsi256_ps(first_lanes(n)))};
}

// t[i] = a[i] + a[i + 4]; u[i] = t[i] + t[i + 2]; u[0] + u[1].
inline float sum_lanes(F8 a) {
  const __m128 t = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 u = _mm_add_ps(t, _mm_movehl_ps(t, t));
  return _mm_cvtss_f32(_mm_add_ss(u, _mm_shuffle_ps(u, u, 1)));
}
// sum_lanes of four registers.
inline __m128 fold_halves(F8 a) {
  return _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
}
inline void sum_lanes4(F8 a, F8 b, F8 c, F8 d, float out[4]) {
  const __m128 ta = fold_halves(a), tb = fold_halves(b), tc = fold_halves(c), td = fold_halves(d);
  const __m128 ab = _mm_add_ps(_mm_movelh_ps(ta, tb), _mm_movehl_ps(tb, ta));
  const __m128 cd = _mm_add_ps(_mm_movelh_ps(tc, td), _mm_movehl_ps(td, tc));
  _mm_storeu_ps(out, _mm_add_ps(_mm_shuffle_ps(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)),
                                _mm_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 1, 3, 1))));
}
inline float max_lanes(F8 a) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}

// Lane i takes lane i ^ distance; distance 1, 2 or 4.
template <int distance>
inline F8 swap_lanes(F8 a) {
  if constexpr (distance == 1) return {_mm256_permute_ps(a.v, _MM_SHUFFLE(2, 3, 0, 1))};
  if constexpr (distance == 2) return {_mm256_permute_ps(a.v, _MM_SHUFFLE(1, 0, 3, 2))};
  if constexpr (distance == 4) return {_mm256_permute2f128_ps(a.v, a.v, 1)};
}

// Nearest bf16, ties to even; a NaN is made quiet (quant/bf16.h).
inline F8 round_bf16(F8 a) {
  const __m256i bits = _mm256_castps_si256(a.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
  const __m256 nan = _mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q);
  const __m256i chosen = _mm256_blendv_epi8(up, quiet, _mm256_castps_si256(nan));
  return {_mm256_castsi256_ps(
      _mm256_and_si256(chosen, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u))))};
}

// |a| on the grid of a small float: `drop` mantissa bits dropped, ties to even, at most `largest`;
// below `smallest_normal` multiples of the last place of `magic`. NaN stays NaN.
inline F8 round_magnitude(F8 magnitude, int drop, float largest, float smallest_normal,
                          float magic) {
  const __m256 m = _mm256_min_ps(_mm256_set1_ps(largest), magnitude.v);
  const __m256i bits = _mm256_castps_si256(m);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, drop), _mm256_set1_epi32(1));
  const __m256i half = _mm256_set1_epi32((1 << (drop - 1)) - 1);
  const __m256i normal = _mm256_and_si256(_mm256_add_epi32(bits, _mm256_add_epi32(odd, half)),
                                          _mm256_set1_epi32(-(1 << drop)));
  const __m256 shift = _mm256_set1_ps(magic);
  const __m256 subnormal = _mm256_sub_ps(_mm256_add_ps(m, shift), shift);
  const __m256 below = _mm256_cmp_ps(m, _mm256_set1_ps(smallest_normal), _CMP_LT_OQ);
  return {_mm256_blendv_ps(_mm256_castsi256_ps(normal), subnormal, below)};
}
// a with the sign of b; a >= 0.
inline F8 with_sign(F8 a, F8 b) {
  return {_mm256_or_ps(a.v, _mm256_and_ps(b.v, _mm256_set1_ps(-0.0f)))};
}

// The upper halves of bf16 lanes, as they are stored; p at any address.
inline void store_bf16(F8 rounded, std::uint8_t* p) {
  const __m256i words = _mm256_srli_epi32(_mm256_castps_si256(rounded.v), 16);
  const __m256i packed = _mm256_packus_epi32(words, words);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(_mm256_permute4x64_epi64(
                                                      packed, _MM_SHUFFLE(3, 1, 2, 0))));
}
// E4M3 codes of lanes that lie on the E4M3 grid (a NaN gives 0x7F or 0xFF).
inline void store_e4m3(F8 a, std::uint8_t* p) {
  const __m256i bits = _mm256_castps_si256(a.v);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
  const __m256i normal =
      _mm256_sub_epi32(_mm256_srli_epi32(magnitude, 20), _mm256_set1_epi32(120 << 3));
  const __m256i subnormal = _mm256_sub_epi32(
      _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(0x1p14f))),
      _mm256_set1_epi32(0x46800000));
  const __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3C800000), magnitude);
  __m256i code = _mm256_blendv_epi8(normal, subnormal, below);
  code = _mm256_min_epi32(code, _mm256_set1_epi32(0x7F));
  code = _mm256_or_si256(code, sign);
  const __m256i words = _mm256_packus_epi32(code, code);
  const __m256i bytes = _mm256_packus_epi16(words, words);
  const int low = _mm_cvtsi128_si32(_mm256_castsi256_si128(bytes));
  const int high = _mm_cvtsi128_si32(_mm256_extracti128_si256(bytes, 1));
  std::memcpy(p, &low, 4);
  std::memcpy(p + 4, &high, 4);
}

// Eight stored values, in order.
inline F8 load_bf16(const std::uint8_t* p) {
  const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16))};
}
// Sixteen codes, none of them NaN: 2^-8 times their values, for as halves the same bits stand for
// that.
inline void load_e4m3(const std::uint8_t* p, F8 out[2]) {
  const __m256i codes = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i half =
      _mm256_and_si256(_mm256_slli_epi16(codes, 7), _mm256_set1_epi16(static_cast<short>(0xBF80)));
  out[0].v = _mm256_cvtph_ps(_mm256_castsi256_si128(half));
  out[1].v = _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1));
}
// Whether a NaN is among n codes; n is a multiple of 16.
inline bool any_e4m3_nan(const std::uint8_t* p, int n) {
  const __m128i nan = _mm_set1_epi8(0x7F);
  __m128i any = _mm_setzero_si128();
  for (std::int64_t i = 0; i < n; i += 16) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i));
    any = _mm_or_si128(any, _mm_cmpeq_epi8(_mm_and_si128(codes, nan), nan));
  }
  return _mm_movemask_epi8(any) != 0;
}
// Four bytes, the low nibble first.
inline F8 load_e2m1(const std::uint8_t* p) {
  std::uint32_t word;
  std::memcpy(&word, p, 4);
  const __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(word)),
                                          _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
  const __m256 magnitude = _mm256_permutevar8x32_ps(
      _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f), codes);
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(8)), 28);
  return {_mm256_or_ps(magnitude, _mm256_castsi256_ps(sign))};
}

inline __m256 power_of_two(__m256i e) {  // -126 <= e <= 127
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
}
// p * 2^n; n holds integers, -300 <= n <= 300. Two factors, so that a subnormal result is rounded
// once.
inline F8 scale_by_power(F8 p, F8 n) {
  const __m256i whole = _mm256_cvtps_epi32(n.v);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  return {_mm256_mul_ps(_mm256_mul_ps(p.v, power_of_two(half)),
                        power_of_two(_mm256_sub_epi32(whole, half)))};
}

// One k of a panel (panel.h): 32 rows in natural order.
struct F32 {
  F8 v[4];
};

inline F32 panel_f32(const std::byte* p) {
  const float* w = reinterpret_cast<const float*>(p);
  return {{load(w), load(w + 8), load(w + 16), load(w + 24)}};
}
inline F32 panel_bf16(const std::byte* p) {
  F32 out;
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  for (std::int64_t q = 0; q < 2; ++q) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p) + q);
    out.v[2 * q].v = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    out.v[2 * q + 1].v = _mm256_castsi256_ps(_mm256_and_si256(pairs, upper));
  }
  return out;
}
// 2^-8 times the values: the codes' bits read as halves.
inline F32 panel_e4m3(const std::byte* p) {
  const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i mask = _mm256_set1_epi16(static_cast<short>(0xBF80));
  const __m256i low = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 1), mask);
  const __m256i high = _mm256_and_si256(_mm256_srai_epi16(codes, 1), mask);
  return {{{_mm256_cvtph_ps(_mm256_castsi256_si128(low))},
           {_mm256_cvtph_ps(_mm256_extracti128_si256(low, 1))},
           {_mm256_cvtph_ps(_mm256_castsi256_si128(high))},
           {_mm256_cvtph_ps(_mm256_extracti128_si256(high, 1))}}};
}
// Nibbles through a table of 16 bf16 numbers, given as its lower and its upper bytes.
inline F32 panel_nibbles(const std::byte* p, __m128i lower, __m128i upper_bytes) {
  const __m256i low_table = _mm256_broadcastsi128_si256(lower);
  const __m256i high_table = _mm256_broadcastsi128_si256(upper_bytes);
  const __m256i both =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i nibbles = _mm256_and_si256(
      _mm256_srlv_epi32(both, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)), _mm256_set1_epi8(0xF));
  const __m256i low = _mm256_shuffle_epi8(low_table, nibbles);
  const __m256i high = _mm256_shuffle_epi8(high_table, nibbles);
  const __m256i first = _mm256_unpacklo_epi8(low, high), last = _mm256_unpackhi_epi8(low, high);
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  return {{{_mm256_castsi256_ps(_mm256_slli_epi32(first, 16))},
           {_mm256_castsi256_ps(_mm256_and_si256(first, upper))},
           {_mm256_castsi256_ps(_mm256_slli_epi32(last, 16))},
           {_mm256_castsi256_ps(_mm256_and_si256(last, upper))}}};
}
// Every E2M1 value and every integer -8..7 is a bf16.
inline F32 panel_e2m1(const std::byte* p) {
  return panel_nibbles(
      p,
      _mm_setr_epi8(0, 0, char(0x80), char(0xC0), 0, 0x40, char(0x80), char(0xC0), 0, 0, char(0x80),
                    char(0xC0), 0, 0x40, char(0x80), char(0xC0)),
      _mm_setr_epi8(0, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40, char(0x80), char(0xBF), char(0xBF),
                    char(0xBF), char(0xC0), char(0xC0), char(0xC0), char(0xC0)));
}
inline F32 panel_int4(const std::byte* p) {
  return panel_nibbles(
      p,
      _mm_setr_epi8(0, char(0xE0), char(0xC0), char(0xA0), char(0x80), 0x40, 0, char(0x80), 0,
                    char(0x80), 0, 0x40, char(0x80), char(0xA0), char(0xC0), char(0xE0)),
      _mm_setr_epi8(char(0xC1), char(0xC0), char(0xC0), char(0xC0), char(0xC0), char(0xC0),
                    char(0xC0), char(0xBF), 0, 0x3F, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40));
}
// Eight E4M3 bytes without sign (and not NaN): their bits read as halves are 2^-8 of them.
inline F8 load_ue4m3(const std::uint8_t* p) {
  const __m128i codes = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return {_mm256_mul_ps(_mm256_cvtph_ps(_mm_slli_epi16(codes, 7)), _mm256_set1_ps(256.0f))};
}
// Eight E8M0 bytes 0..254.
inline F8 load_e8m0(const std::uint8_t* p) {
  const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return {_mm256_castsi256_ps(
      _mm256_max_epi32(_mm256_slli_epi32(bytes, 23), _mm256_set1_epi32(0x00400000)))};
}
