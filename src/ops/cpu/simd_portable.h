// Eight fp32 lanes in plain C++: simd_avx2.h without AVX2, lane by lane with the same results.
// Included by kernels_portable.cpp alone.
#pragma once

struct F8 {
  float v[8];
};

template <typename Function>
inline F8 lanes(Function f) {
  F8 out;
  for (std::int64_t i = 0; i < 8; ++i) out.v[i] = f(i);
  return out;
}

inline F8 load(const float* p) {
  return lanes([&](std::int64_t i) { return p[i]; });
}
inline void store(F8 a, float* p) {
  for (std::int64_t i = 0; i < 8; ++i) p[i] = a.v[i];
}
inline F8 broadcast(float x) {
  return lanes([&](std::int64_t) { return x; });
}
inline F8 zero() {
  return broadcast(0.0f);
}
inline F8 operator+(F8 a, F8 b) {
  return lanes([&](std::int64_t i) { return a.v[i] + b.v[i]; });
}
inline F8 operator-(F8 a, F8 b) {
  return lanes([&](std::int64_t i) { return a.v[i] - b.v[i]; });
}
inline F8 operator*(F8 a, F8 b) {
  return lanes([&](std::int64_t i) { return a.v[i] * b.v[i]; });
}
inline F8 operator/(F8 a, F8 b) {
  return lanes([&](std::int64_t i) { return a.v[i] / b.v[i]; });
}
inline F8 fma(F8 a, F8 b, F8 c) {
  return lanes([&](std::int64_t i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
inline F8 max(F8 a, F8 b) {
  return lanes([&](std::int64_t i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline F8 min(F8 a, F8 b) {
  return lanes([&](std::int64_t i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline F8 abs(F8 a) {
  return lanes([&](std::int64_t i) { return std::fabs(a.v[i]); });
}

inline F8 load_first(const float* p, int n) {
  return lanes([&](std::int64_t i) { return i < n ? p[i] : 0.0f; });
}
inline void store_first(F8 a, float* p, int n) {
  for (std::int64_t i = 0; i < n; ++i) p[i] = a.v[i];
}
inline F8 join(F8 a, F8 b, int n) {
  return lanes([&](std::int64_t i) { return i < n ? a.v[i] : b.v[i]; });
}

inline float sum_lanes(F8 a) {
  float t[4];
  for (std::int64_t i = 0; i < 4; ++i) t[i] = a.v[i] + a.v[i + 4];
  return (t[0] + t[2]) + (t[1] + t[3]);
}
inline void sum_lanes4(F8 a, F8 b, F8 c, F8 d, float out[4]) {
  out[0] = sum_lanes(a);
  out[1] = sum_lanes(b);
  out[2] = sum_lanes(c);
  out[3] = sum_lanes(d);
}
inline float max_lanes(F8 a) {
  float top = a.v[0];
  for (std::int64_t i = 1; i < 8; ++i) top = std::max(top, a.v[i]);
  return top;
}

template <int distance>
inline F8 swap_lanes(F8 a) {
  return lanes([&](std::int64_t i) { return a.v[i ^ distance]; });
}

inline F8 round_bf16(F8 a) {
  return lanes([&](std::int64_t i) { return quant::bf16_round(a.v[i]); });
}
inline F8 round_magnitude(F8 magnitude, int drop, float largest, float smallest_normal,
                          float magic) {
  return lanes([&](std::int64_t i) {
    const float m = largest < magnitude.v[i] ? largest : magnitude.v[i];
    if (m < smallest_normal) return (m + magic) - magic;
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(m);
    const std::uint32_t half = (1u << (drop - 1)) - 1 + ((bits >> drop) & 1u);
    return std::bit_cast<float>((bits + half) & ~((1u << drop) - 1));
  });
}
inline F8 with_sign(F8 a, F8 b) {
  return lanes([&](std::int64_t i) { return std::copysign(a.v[i], b.v[i]); });
}

inline void store_bf16(F8 rounded, std::uint8_t* p) {
  for (std::int64_t i = 0; i < 8; ++i) {
    const auto word = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded.v[i]) >> 16);
    std::memcpy(p + 2 * i, &word, sizeof(word));
  }
}
inline void store_e4m3(F8 a, std::uint8_t* p) {
  for (std::int64_t i = 0; i < 8; ++i) p[i] = quant::e4m3_encode(a.v[i]);
}
inline F8 load_bf16(const std::uint8_t* p) {
  return lanes([&](std::int64_t i) {
    std::uint16_t word;
    std::memcpy(&word, p + 2 * i, sizeof(word));
    return quant::bf16_decode(word);
  });
}
inline void load_e4m3(const std::uint8_t* p, F8 out[2]) {
  for (std::int64_t half = 0; half < 2; ++half)
    out[half] =
        lanes([&](std::int64_t i) { return quant::e4m3_decode(p[8 * half + i]) * 0x1p-8f; });
}
inline bool any_e4m3_nan(const std::uint8_t* p, int n) {
  return std::any_of(p, p + n, quant::e4m3_is_nan);
}
inline F8 load_e2m1(const std::uint8_t* p) {
  return lanes([&](std::int64_t i) {
    return quant::e2m1_decode(static_cast<std::uint8_t>(p[i / 2] >> (i % 2 * 4)));
  });
}

inline F8 scale_by_power(F8 p, F8 n) {
  return lanes([&](std::int64_t i) {
    const int whole = static_cast<int>(n.v[i]), half = whole >> 1;
    const auto power = [](int e) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
    };
    return p.v[i] * power(half) * power(whole - half);
  });
}

struct F32 {
  F8 v[4];
};

template <typename Function>
inline F32 panel_lanes(Function f) {
  F32 out;
  for (std::int64_t row = 0; row < kPanelRows; ++row) out.v[row / 8].v[row % 8] = f(row);
  return out;
}
inline F32 panel_f32(const std::byte* p) {
  const float* w = reinterpret_cast<const float*>(p);
  return panel_lanes([&](std::int64_t row) { return w[row]; });
}
inline F32 panel_bf16(const std::byte* p) {
  const auto* w = reinterpret_cast<const std::uint16_t*>(p);
  return panel_lanes([&](std::int64_t row) { return quant::bf16_decode(w[bf16_place(row)]); });
}
inline F32 panel_e4m3(const std::byte* p) {
  const auto* w = reinterpret_cast<const std::uint8_t*>(p);
  return panel_lanes(
      [&](std::int64_t row) { return quant::e4m3_decode(w[fp8_place(row)]) * 0x1p-8f; });
}
inline F32 panel_e2m1(const std::byte* p) {
  const auto* w = reinterpret_cast<const std::uint8_t*>(p);
  return panel_lanes([&](std::int64_t row) {
    const std::int64_t nibble = fp4_place(row);
    return quant::e2m1_decode(static_cast<std::uint8_t>(w[nibble / 2] >> (nibble % 2 * 4)));
  });
}
inline F32 panel_int4(const std::byte* p) {
  const auto* w = reinterpret_cast<const std::uint8_t*>(p);
  return panel_lanes([&](std::int64_t row) {
    const std::int64_t nibble = fp4_place(row);
    return quant::int4_decode(static_cast<std::uint8_t>(w[nibble / 2] >> (nibble % 2 * 4)));
  });
}
inline F8 load_ue4m3(const std::uint8_t* p) {
  return lanes([&](std::int64_t i) { return quant::e4m3_decode(p[i]); });
}
inline F8 load_e8m0(const std::uint8_t* p) {
  return lanes([&](std::int64_t i) { return quant::e8m0_decode(p[i]); });
}
