// The kernels over F8, eight fp32 lanes. No include guard: kernels_avx2.cpp and
// kernels_portable.cpp each include it once, in an unnamed namespace, after their F8.

// p[0..7], or the first `left` of them and zeros.
inline F8 load_upto(const float* p, std::int64_t left) {
  return left >= 8 ? load(p) : load_first(p, static_cast<int>(left));
}
inline void store_upto(F8 a, float* p, std::int64_t left) {
  if (left >= 8)
    store(a, p);
  else
    store_first(a, p, static_cast<int>(left));
}
inline F8 bf16_if(bool release, F8 a) {
  return release ? round_bf16(a) : a;
}

// exp by 2^n * p(r), r = x - n ln 2 in two parts, |r| <= 0.347; p has degree 6. Within 1 unit in the
// last place of exp (kernels_test goes through the floats). -inf gives 0, large x infinity, NaN NaN.
inline F8 exp8(F8 x) {
  x = min(broadcast(89.0f), max(broadcast(-104.0f), x));
  const F8 shift = broadcast(0x1.8p23f);  // leaves an integer in the low bits: rounds to nearest
  const F8 n = fma(x, broadcast(0x1.715476p0f), shift) - shift;
  F8 r = fma(n, broadcast(-0x1.62e4p-1f), x);
  r = fma(n, broadcast(-0x1.7f7d1cp-20f), r);
  F8 q = broadcast(0x1.6a23cep-10f);
  q = fma(q, r, broadcast(0x1.123a2p-7f));
  q = fma(q, r, broadcast(0x1.5558f2p-5f));
  q = fma(q, r, broadcast(0x1.555492p-3f));
  q = fma(q, r, broadcast(0x1.fffffcp-2f));
  const F8 p = fma(r * r, q, r) + broadcast(1.0f);
  return scale_by_power(p, n);
}

void exp_all(float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += 8) store_upto(exp8(load_upto(x + i, n - i)), x + i, n - i);
}

// Sixteen partial sums of f(i, left) over i = 0, 8, 16, ...: what f gives for the last, partial
// step counts in its first lanes only.
template <typename Step>
inline F8 partial_sums(std::int64_t n, Step step) {
  F8 s0 = zero(), s1 = zero();
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    s0 = step(i, std::int64_t{8}, s0);
    s1 = step(i + 8, std::int64_t{8}, s1);
  }
  const int left = static_cast<int>(n - i);
  if (left > 0) s0 = join(step(i, left, s0), s0, std::min(left, 8));
  if (left > 8) s1 = join(step(i + 8, left - 8, s1), s1, left - 8);
  return s0 + s1;
}

inline float dot(const float* a, const float* b, std::int64_t n) {
  return sum_lanes(partial_sums(n, [&](std::int64_t i, std::int64_t left, F8 s) {
    return fma(load_upto(a + i, left), load_upto(b + i, left), s);
  }));
}

float sum_squares(const float* x, std::int64_t n) {
  return dot(x, x, n);
}

float sum_squares_bf16(const float* x, std::int64_t n) {
  return sum_lanes(partial_sums(n, [&](std::int64_t i, std::int64_t left, F8 s) {
    const F8 v = load_upto(x + i, left);
    return s + round_bf16(v * v);
  }));
}

// Four rows against one x: its loads are shared.
inline void dots4(const float* rows, std::int64_t stride, const float* x, std::int64_t n,
                  float out[4]) {
  F8 s[4][2];
  for (auto& row : s) row[0] = row[1] = zero();
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const F8 x0 = load(x + i), x1 = load(x + i + 8);
    for (std::int64_t r = 0; r < 4; ++r) {
      s[r][0] = fma(load(rows + r * stride + i), x0, s[r][0]);
      s[r][1] = fma(load(rows + r * stride + i + 8), x1, s[r][1]);
    }
  }
  const int left = static_cast<int>(n - i);
  for (std::int64_t half = 0; half < 2 && left > 8 * half; ++half) {
    const std::int64_t count = std::min<std::int64_t>(left - 8 * half, 8);
    const std::int64_t at = i + 8 * half;
    const F8 xs = load_upto(x + at, count);
    for (std::int64_t r = 0; r < 4; ++r)
      s[r][half] =
          join(fma(load_upto(rows + r * stride + at, count), xs, s[r][half]), s[r][half], count);
  }
  sum_lanes4(s[0][0] + s[0][1], s[1][0] + s[1][1], s[2][0] + s[2][1], s[3][0] + s[3][1], out);
}

void dots(const float* rows, std::int64_t stride, std::int64_t count, const float* x,
          std::int64_t n, float* out, std::int64_t out_stride) {
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    float four[4];
    dots4(rows + i * stride, stride, x, n, four);
    for (std::int64_t r = 0; r < 4; ++r) out[(i + r) * out_stride] = four[r];
  }
  for (; i < count; ++i) out[i * out_stride] = dot(rows + i * stride, x, n);
}

float max_all(const float* x, std::int64_t n, float floor) {
  F8 top = broadcast(floor);
  for (std::int64_t i = 0; i < n; i += 8) {
    const std::int64_t left = n - i;
    const F8 next = load_upto(x + i, left);
    top = max(left >= 8 ? next : join(next, top, static_cast<int>(left)), top);
  }
  return max_lanes(top);
}

std::int32_t argmax(const float* x, std::int64_t n) {
  constexpr std::int64_t kBlock = 1024;  // the largest is looked for again in one of these alone
  const F8 lowest = broadcast(-INFINITY), one = broadcast(1.0f);
  F8 nan = zero();  // sums of numbers in [0, 1], or NaN
  float top = -INFINITY;
  std::int64_t top_block = 0;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    F8 block_top = lowest;
    const std::int64_t end = std::min(n, begin + kBlock);
    for (std::int64_t i = begin; i < end; i += 8) {
      const std::int64_t left = end - i;
      const F8 loaded = load_upto(x + i, left),
               next = left >= 8 ? loaded : join(loaded, lowest, static_cast<int>(left));
      nan = nan + min(one, max(zero(), next));
      block_top = max(next, block_top);
    }
    const float largest = max_lanes(block_top);
    if (largest > top) {
      top = largest;
      top_block = begin;
    }
  }
  if (std::isnan(sum_lanes(nan)) || !std::isfinite(top)) return kNoBest;
  return static_cast<std::int32_t>(std::find(x + top_block, x + n, top) - x);
}

float exp_sum(float* x, std::int64_t n, float top) {
  const F8 by = broadcast(top);
  return sum_lanes(partial_sums(n, [&](std::int64_t i, std::int64_t left, F8 s) {
    const F8 e = exp8(load_upto(x + i, left) - by);
    store_upto(e, x + i, left);
    return s + e;
  }));
}

template <int heads>
inline void weighted_sum_heads(const float* const* rows, std::int64_t count, const float* p,
                               std::int64_t p_stride, std::int64_t begin, std::int64_t end,
                               float* out, std::int64_t out_stride) {
  std::int64_t d = begin;
  for (; d + 16 <= end; d += 16) {
    F8 s[heads][2];
    for (auto& head : s) head[0] = head[1] = zero();
    for (std::int64_t j = 0; j < count; ++j) {
      const F8 r0 = load(rows[j] + d), r1 = load(rows[j] + d + 8);
      for (std::int64_t h = 0; h < heads; ++h) {
        const F8 weight = broadcast(p[h * p_stride + j]);
        s[h][0] = fma(weight, r0, s[h][0]);
        s[h][1] = fma(weight, r1, s[h][1]);
      }
    }
    for (std::int64_t h = 0; h < heads; ++h) {
      store(s[h][0], out + h * out_stride + d);
      store(s[h][1], out + h * out_stride + d + 8);
    }
  }
  for (; d < end; d += 8) {
    const std::int64_t left = end - d;
    for (std::int64_t h = 0; h < heads; ++h) {
      F8 s = zero();
      for (std::int64_t j = 0; j < count; ++j)
        s = fma(broadcast(p[h * p_stride + j]), load_upto(rows[j] + d, left), s);
      store_upto(s, out + h * out_stride + d, left);
    }
  }
}

void weighted_sum(const float* const* rows, std::int64_t count, const float* p,
                  std::int64_t p_stride, std::int64_t heads, std::int64_t begin, std::int64_t end,
                  float* out, std::int64_t out_stride) {
  std::int64_t h = 0;
  for (; h + 4 <= heads; h += 4)
    weighted_sum_heads<4>(rows, count, p + h * p_stride, p_stride, begin, end, out + h * out_stride,
                          out_stride);
  for (; h < heads; ++h)
    weighted_sum_heads<1>(rows, count, p + h * p_stride, p_stride, begin, end, out + h * out_stride,
                          out_stride);
}

void scale_all(const float* x, float s, const float* weight, std::int64_t n, float* y) {
  const F8 factor = broadcast(s);
  for (std::int64_t i = 0; i < n; i += 8) {
    F8 v = load_upto(x + i, n - i) * factor;
    if (weight) v = v * load_upto(weight + i, n - i);
    store_upto(v, y + i, n - i);
  }
}

void divide_all(float* x, float by, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += 8)
    store_upto(load_upto(x + i, n - i) / broadcast(by), x + i, n - i);
}

void add_all(const float* a, std::int64_t n, float* sum) {
  for (std::int64_t i = 0; i < n; i += 8)
    store_upto(load_upto(a + i, n - i) + load_upto(sum + i, n - i), sum + i, n - i);
}

void rotate(float* x, const float* cos, const float* sin, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += 8) {
    const std::int64_t left = n - i;
    const F8 v = load_upto(x + i, left);
    store_upto(v * load_upto(cos + i, left) + swap_lanes<1>(v) * load_upto(sin + i, left), x + i,
               left);
  }
}

// (a, b) -> (a + b, a - b) between lanes `distance` apart.
template <int distance>
inline F8 butterfly(F8 a) {
  float signs[8];
  for (std::int64_t i = 0; i < 8; ++i) signs[i] = i & distance ? -1.0f : 1.0f;
  return fma(a, load(signs), swap_lanes<distance>(a));
}

void hadamard(float* x, std::int64_t n) {
  if (n < 8) {
    for (std::int64_t half = 1; half < n; half *= 2)
      for (std::int64_t i = 0; i < n; i += 2 * half)
        for (std::int64_t j = i; j < i + half; ++j) {
          const float a = x[j], b = x[j + half];
          x[j] = a + b;
          x[j + half] = a - b;
        }
  } else {
    for (std::int64_t i = 0; i < n; i += 8)
      store(butterfly<4>(butterfly<2>(butterfly<1>(load(x + i)))), x + i);
    for (std::int64_t half = 8; half < n; half *= 2)
      for (std::int64_t i = 0; i < n; i += 2 * half)
        for (std::int64_t j = i; j < i + half; j += 8) {
          const F8 a = load(x + j), b = load(x + j + half);
          store(a + b, x + j);
          store(a - b, x + j + half);
        }
  }
  scale_all(x, 1.0f / std::sqrt(static_cast<float>(n)), nullptr, n, x);
}

void round_bf16_all(float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += 8)
    store_upto(round_bf16(load_upto(x + i, n - i)), x + i, n - i);
}

inline float max_magnitude(const float* x, std::int64_t n, float floor) {
  F8 top = broadcast(floor);
  for (std::int64_t i = 0; i < n; i += 8) top = max(abs(load_upto(x + i, n - i)), top);
  return max_lanes(top);
}

// deepseek-v4.md 6.2 and 6.3
constexpr float kFp8AmaxFloor = 1e-4f;

inline F8 on_e4m3_grid(F8 a) {
  return with_sign(round_magnitude(abs(a), 20, quant::kE4M3Max, 0x1p-6f, 0x1p14f), a);
}
inline F8 on_e2m1_grid(F8 a) {
  return with_sign(round_magnitude(abs(a), 22, quant::kE2M1Max, 1.0f, 0x1p22f), a);
}

inline std::uint8_t fp8_block_scale(const float* x, std::int64_t n) {
  const std::uint8_t scale = quant::fp8_scale(max_magnitude(x, n, kFp8AmaxFloor));
  NIBBLE_CHECK(scale != quant::kE8M0Nan, "an infinite value in a block of {}", n);
  return scale;
}

void round_fp8(float* x, std::int64_t n, std::int64_t block) {
  for (std::int64_t begin = 0; begin < n; begin += block) {
    const std::int64_t count = std::min(block, n - begin);
    float* group = x + begin;
    const std::uint8_t code = fp8_block_scale(group, count);
    const F8 scale = broadcast(quant::e8m0_decode(code));
    const F8 inverse = broadcast(quant::e8m0_reciprocal(code));
    for (std::int64_t i = 0; i < count; i += 8)
      store_upto(on_e4m3_grid(load_upto(group + i, count - i) * inverse) * scale, group + i,
                 count - i);
  }
}

void round_fp4(float* x, std::int64_t n) {
  for (std::int64_t begin = 0; begin < n; begin += quant::kMxfp4Group) {
    float* group = x + begin;
    const std::uint8_t code = quant::mxfp4_scale(max_magnitude(group, quant::kMxfp4Group, 0.0f));
    NIBBLE_CHECK(code != quant::kE8M0Nan, "an infinite value in a block of {}", quant::kMxfp4Group);
    const F8 scale = broadcast(quant::e8m0_decode(code));
    const F8 inverse = broadcast(quant::e8m0_reciprocal(code));
    for (std::int64_t i = 0; i < quant::kMxfp4Group; i += 8)
      store(on_e2m1_grid(load(group + i) * inverse) * scale, group + i);
  }
}

// Eight codes at a time, the rest one by one.
void load_row(RowFormat format, int width, const std::byte* row, float* x) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(row);
  const auto bf16 = [](const std::uint8_t* from, int count, float* to) {
    const int whole = count & ~7;
    for (std::int64_t i = 0; i < whole; i += 8) store(load_bf16(from + 2 * i), to + i);
    for (std::int64_t i = whole; i < count; ++i) {
      std::uint16_t word;
      std::memcpy(&word, from + 2 * i, sizeof(word));
      to[i] = quant::bf16_decode(word);
    }
  };
  switch (format) {
    case RowFormat::kF32:
      std::memcpy(x, row, sizeof(float) * static_cast<std::size_t>(width));
      return;
    case RowFormat::kBf16:
      bf16(bytes, width, x);
      return;
    case RowFormat::kFp8Nope: {
      const std::int64_t nope = width - kRopeChannels;
      const std::uint8_t* scales = bytes + nope + 2L * kRopeChannels;
      for (std::int64_t begin = 0; begin < nope; begin += kFp8RowBlock) {
        const std::uint8_t code = *scales++;
        const float scale = quant::e8m0_decode(code);
        const std::int64_t end = std::min(begin + kFp8RowBlock, nope);
        std::int64_t i = begin;
        // Whole blocks without NaN, the usual ones, go sixteen codes at a time.
        if (end - begin == kFp8RowBlock && code <= quant::kFp8MaxFiniteScale &&
            !any_e4m3_nan(bytes + begin, kFp8RowBlock)) {
          const F8 times = broadcast(scale * 256.0f);
          for (; i < end; i += 16) {
            F8 value[2];
            load_e4m3(bytes + i, value);
            store(value[0] * times, x + i);
            store(value[1] * times, x + i + 8);
          }
        }
        for (; i < end; ++i) x[i] = quant::e4m3_decode(bytes[i]) * scale;
      }
      bf16(bytes + nope, kRopeChannels, x + nope);
      return;
    }
    case RowFormat::kFp4Index: {
      const std::uint8_t* scales = bytes + width / 2;
      for (std::int64_t begin = 0; begin < width; begin += kFp4IndexBlock) {
        const F8 scale = broadcast(quant::e8m0_decode(*scales++));
        for (std::int64_t i = begin; i < begin + kFp4IndexBlock; i += 8)
          store(load_e2m1(bytes + i / 2) * scale, x + i);
      }
      return;
    }
  }
}

void store_row(RowFormat format, int width, const float* x, std::byte* row) {
  auto* bytes = reinterpret_cast<std::uint8_t*>(row);
  const auto bf16 = [](const float* from, int count, std::uint8_t* to) {
    const int whole = count & ~7;
    for (std::int64_t i = 0; i < whole; i += 8) store_bf16(round_bf16(load(from + i)), to + 2 * i);
    for (std::int64_t i = whole; i < count; ++i) {
      const std::uint16_t word = quant::bf16_encode(from[i]);
      std::memcpy(to + 2 * i, &word, sizeof(word));
    }
  };
  switch (format) {
    case RowFormat::kF32:
      std::memcpy(row, x, sizeof(float) * static_cast<std::size_t>(width));
      return;
    case RowFormat::kBf16:
      bf16(x, width, bytes);
      return;
    case RowFormat::kFp8Nope: {
      const std::int64_t nope = width - kRopeChannels;
      std::uint8_t* scales = bytes + nope + 2L * kRopeChannels;
      for (std::int64_t begin = 0; begin < nope; begin += kFp8RowBlock) {
        const std::int64_t end = std::min(begin + kFp8RowBlock, nope);
        const std::uint8_t scale = fp8_block_scale(x + begin, end - begin);
        const float inverse = quant::e8m0_reciprocal(scale);
        std::int64_t i = begin;
        for (; i + 8 <= end; i += 8)
          store_e4m3(on_e4m3_grid(load(x + i) * broadcast(inverse)), bytes + i);
        for (; i < end; ++i) bytes[i] = quant::e4m3_encode(x[i] * inverse);
        *scales++ = scale;
      }
      *scales = 0;
      bf16(x + nope, kRopeChannels, bytes + nope);
      return;
    }
    case RowFormat::kFp4Index: {
      float rotated[kMaxFp4Width];
      NIBBLE_CHECK(width <= kMaxFp4Width, "index key of {} channels", width);
      std::copy_n(x, width, rotated);
      hadamard(rotated, width);
      round_bf16_all(rotated, width);
      const auto size = static_cast<std::size_t>(width);
      quant::mxfp4_encode_row({rotated, size}, {bytes, size / 2},
                              {bytes + size / 2, size / kFp4IndexBlock});
      return;
    }
  }
}

void expand(float* streams, const float* out, const float* post, const float* comb, std::int64_t hc,
            std::int64_t d, bool release) {
  for (std::int64_t i = 0; i < d; i += 8) {
    const std::int64_t left = d - i;
    F8 old[kMaxStreams];
    for (std::int64_t j = 0; j < hc; ++j) old[j] = load_upto(streams + j * d + i, left);
    const F8 added = load_upto(out + i, left);
    for (std::int64_t k = 0; k < hc; ++k) {
      F8 sum = broadcast(post[k]) * added;
      for (std::int64_t j = 0; j < hc; ++j) sum = fma(broadcast(comb[j * hc + k]), old[j], sum);
      store_upto(bf16_if(release, sum), streams + k * d + i, left);
    }
  }
}

void collapse(const float* streams, const float* weight, std::int64_t hc, std::int64_t d,
              bool release, float* y) {
  for (std::int64_t i = 0; i < d; i += 8) {
    F8 sum = zero();
    for (std::int64_t k = 0; k < hc; ++k)
      sum = fma(broadcast(weight[k]), load_upto(streams + k * d + i, d - i), sum);
    store_upto(bf16_if(release, sum), y + i, d - i);
  }
}

void swiglu(float* gate, const float* up, float weight, float limit, std::int64_t n, bool release) {
  const F8 top = broadcast(limit), bottom = broadcast(-limit), one = broadcast(1.0f);
  for (std::int64_t i = 0; i < n; i += 8) {
    const F8 g = min(top, bf16_if(release, load_upto(gate + i, n - i)));
    const F8 u = min(top, max(bottom, bf16_if(release, load_upto(up + i, n - i))));
    const F8 silu = g / (one + exp8(zero() - g));
    store_upto(bf16_if(release, broadcast(weight) * (silu * u)), gate + i, n - i);
  }
}

void pool(const float* const* values, const float* const* gates, std::int64_t rows,
          std::int64_t width, float* entry) {
  for (std::int64_t d = 0; d < width; d += 8) {
    const std::int64_t left = width - d;
    F8 top = load_upto(gates[0] + d, left);
    for (std::int64_t j = 1; j < rows; ++j) top = max(load_upto(gates[j] + d, left), top);
    F8 sum = zero(), acc = zero();
    for (std::int64_t j = 0; j < rows; ++j) {
      const F8 p = exp8(load_upto(gates[j] + d, left) - top);
      sum = sum + p;
      acc = fma(p, load_upto(values[j] + d, left), acc);
    }
    store_upto(acc / sum, entry + d, left);
  }
}

void index_scores(const float* q, std::int64_t heads, std::int64_t width, const float* weights,
                  const float* keys, std::int64_t count, float* out) {
  float relu[kMaxIndexHeads];
  for (std::int64_t w = 0; w < count; ++w) {
    dots(q, width, heads, keys + w * width, width, relu, 1);
    for (std::int64_t h = 0; h < heads; h += 8)
      store_upto(max(load_upto(relu + h, heads - h), zero()), relu + h, heads - h);
    out[w] = dot(weights, relu, heads);
  }
}

// ---- panels ----

template <quant::Format format>
inline F32 decode_column(const std::byte* column) {
  if constexpr (format == quant::Format::kF32) return panel_f32(column);
  if constexpr (format == quant::Format::kBF16) return panel_bf16(column);
  if constexpr (format == quant::Format::kFp8Block128 || format == quant::Format::kFp8Block32)
    return panel_e4m3(column);
  if constexpr (format == quant::Format::kMxfp4 || format == quant::Format::kNvfp4)
    return panel_e2m1(column);
  if constexpr (format == quant::Format::kInt4G32 || format == quant::Format::kInt4G128)
    return panel_int4(column);
}

inline float float_at(const std::byte* p, std::int64_t i) {
  float value;
  std::memcpy(&value, p + i * 4, sizeof(value));
  return value;
}

// total += chain * scale of block b, rows 8 v ..
template <quant::Format format>
inline F8 finish_block(const Panel& panel, std::int64_t b, int v, F8 chain, F8 total) {
  const std::int64_t at = b * kPanelRows + 8 * v;
  if constexpr (format == quant::Format::kMxfp4) {
    return fma(chain, load_e8m0(reinterpret_cast<const std::uint8_t*>(panel.scales) + at), total);
  } else if constexpr (format == quant::Format::kNvfp4) {
    return fma(chain, load_ue4m3(reinterpret_cast<const std::uint8_t*>(panel.scales) + at), total);
  } else if constexpr (format == quant::Format::kInt4G32 || format == quant::Format::kInt4G128) {
    const F8 scale = panel.scale_dtype == tensor::DType::kBF16
                         ? load_bf16(reinterpret_cast<const std::uint8_t*>(panel.scales) + 2 * at)
                         : load(reinterpret_cast<const float*>(panel.scales) + at);
    return fma(chain, scale, total);
  } else if constexpr (format == quant::Format::kFp8Block128 ||
                       format == quant::Format::kFp8Block32) {
    // 2^8: the decoded lanes are 2^-8 of the codes' values.
    return fma(chain * broadcast(256.0f), broadcast(float_at(panel.scales, b)), total);
  } else {
    return chain + total;
  }
}

// The chains of a block into the totals out[tokens][32].
template <quant::Format format, int tokens>
inline void add_block(const Panel& panel, std::int64_t b, const F8 (&chain)[tokens][4],
                      float* out) {
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t v = 0; v < 4; ++v) {
      float* at = out + t * kPanelRows + 8 * v;
      store(finish_block<format>(panel, b, v, chain[t][v], load(at)), at);
    }
}

// One or two tokens: decoded in registers.
template <quant::Format format, int tokens>
inline void panel_few(const Panel& panel, const float* const* x, float* out) {
  constexpr std::int64_t kBytes = panel_column_bytes(format), kBlock = panel_block(format);
  std::fill_n(out, tokens * kPanelRows, 0.0f);
  for (std::int64_t begin = 0, b = 0; begin < panel.cols; begin += kBlock, ++b) {
    const std::int64_t end = std::min(begin + kBlock, panel.cols);
    F8 chain[tokens][4];
    for (auto& token : chain)
      for (F8& v : token) v = zero();
    for (std::int64_t k = begin; k < end; ++k) {
      const F32 w = decode_column<format>(panel.data + k * kBytes);
      for (std::int64_t t = 0; t < tokens; ++t) {
        const F8 xk = broadcast(x[t][k]);
        for (std::int64_t v = 0; v < 4; ++v) chain[t][v] = fma(w.v[v], xk, chain[t][v]);
      }
    }
    add_block<format, tokens>(panel, b, chain, out);
  }
}

// `tokens` tokens against one decoded block.
template <quant::Format format, int tokens>
inline void block_times(const Panel& panel, std::int64_t b, const float* w, std::int64_t begin,
                        std::int64_t end, const float* const* x, float* out) {
  F8 chain[tokens][4];
  for (auto& token : chain)
    for (F8& v : token) v = zero();
  for (std::int64_t k = begin; k < end; ++k) {
    F8 xk[tokens];
    for (std::int64_t t = 0; t < tokens; ++t) xk[t] = broadcast(x[t][k]);
    const float* column = w + (k - begin) * kPanelRows;
    for (std::int64_t v = 0; v < 4; ++v) {
      const F8 wv = load(column + 8 * v);
      for (std::int64_t t = 0; t < tokens; ++t) chain[t][v] = fma(wv, xk[t], chain[t][v]);
    }
  }
  add_block<format, tokens>(panel, b, chain, out);
}

// Several tokens: each block is decoded once for all of them.
template <quant::Format format>
inline void panel_many(const Panel& panel, const float* const* x, std::int64_t n, float* out) {
  constexpr std::int64_t kBytes = panel_column_bytes(format), kBlock = panel_block(format);
  alignas(64) float w[kBlock * kPanelRows];
  std::fill_n(out, n * kPanelRows, 0.0f);
  for (std::int64_t begin = 0, b = 0; begin < panel.cols; begin += kBlock, ++b) {
    const std::int64_t end = std::min(begin + kBlock, panel.cols);
    for (std::int64_t k = begin; k < end; ++k) {
      const F32 column = decode_column<format>(panel.data + k * kBytes);
      for (std::int64_t v = 0; v < 4; ++v) store(column.v[v], w + (k - begin) * kPanelRows + 8 * v);
    }
    std::int64_t t = 0;
    for (; t + 3 <= n; t += 3)
      block_times<format, 3>(panel, b, w, begin, end, x + t, out + t * kPanelRows);
    if (n - t == 2)
      block_times<format, 2>(panel, b, w, begin, end, x + t, out + t * kPanelRows);
    else if (n - t == 1)
      block_times<format, 1>(panel, b, w, begin, end, x + t, out + t * kPanelRows);
  }
}

template <quant::Format format>
inline void panel_format(const Panel& panel, const float* const* x, std::int64_t n, float* out) {
  if (n == 1)
    panel_few<format, 1>(panel, x, out);
  else if (n == 2)
    panel_few<format, 2>(panel, x, out);
  else
    panel_many<format>(panel, x, n, out);
  if constexpr (format == quant::Format::kNvfp4) {
    const F8 global = broadcast(panel.global_scale);
    for (std::int64_t i = 0; i < n * kPanelRows; i += 8) store(load(out + i) * global, out + i);
  }
}

void panel_times(const Panel& panel, const float* const* x, std::int64_t n, float* out) {
  switch (panel.format) {
    case quant::Format::kF32:
      return panel_format<quant::Format::kF32>(panel, x, n, out);
    case quant::Format::kBF16:
      return panel_format<quant::Format::kBF16>(panel, x, n, out);
    case quant::Format::kFp8Block128:
      return panel_format<quant::Format::kFp8Block128>(panel, x, n, out);
    case quant::Format::kFp8Block32:
      return panel_format<quant::Format::kFp8Block32>(panel, x, n, out);
    case quant::Format::kMxfp4:
      return panel_format<quant::Format::kMxfp4>(panel, x, n, out);
    case quant::Format::kNvfp4:
      return panel_format<quant::Format::kNvfp4>(panel, x, n, out);
    case quant::Format::kInt4G32:
      return panel_format<quant::Format::kInt4G32>(panel, x, n, out);
    case quant::Format::kInt4G128:
      return panel_format<quant::Format::kInt4G128>(panel, x, n, out);
  }
}

constexpr Kernels table(const char* isa, bool vector) {
  return {isa,          vector,    panel_times, dots,           sum_squares, sum_squares_bf16,
          max_all,      argmax,    exp_sum,     weighted_sum,   scale_all,   divide_all,
          add_all,      rotate,    hadamard,    round_bf16_all, round_fp8,   round_fp4,
          load_row,     store_row, expand,      collapse,       swiglu,      pool,
          index_scores, exp_all};
}
