// The op `rope_and_write`: rope of queries and keys and the cache write in one launch. A few
// tokens, and all formats, take rope_kv_write_kernel, which spreads a token over several CTAs. Many
// tokens with binary16 caches take rope_half_write_kernel, one CTA a token. Any card; bound by
// latency for a few tokens and by memory for many.

#include "backend/cuda/attention/rope_kv_write.h"

#include "backend/cuda/attention/kv_write.cuh"
#include "backend/cuda/attention/rope.cuh"
#include "backend/cuda/device/alignment.h"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/token_units.cuh"
#include "base/check.h"

namespace bl::cuda {
namespace {

struct FusedParameters {
  RopeParameters q;
  RopeParameters k;  // its x is not used: the keys are write.k.x
  KvWriteParameters write;
  int runs;                      // runs of 32 pairs of a head of q
  int kv_units;                  // units of a token's keys and values
  float2* rope_table = nullptr;  // [tokens][half]: output instead of rotating q; or null
};

// Grid: token_units.cuh. Units of keys and values come first, because they take longest.
template <Widths kWidths>
__global__ void __launch_bounds__(kUnitWarps * 32) rope_kv_write_kernel(FusedParameters p) {
  extern __shared__ float2 table[];
  pdl_trigger();
  pdl_wait();
  const std::int64_t t = blockIdx.x;
  fill_rope_table(p.q, t, table);
  float* row = p.q.x[t];
  for_units(p.kv_units + p.q.heads * p.runs, [&](int u) {
    if (u < p.kv_units) {
      write_unit<kWidths>(p.write, t, u,
                          [&](const float* x, int e) { return rotated_element(p.k, table, x, e); });
      return;
    }
    const int unit = u - p.kv_units;
    const int head = unit / p.runs;
    rotate_pairs(p.q, table, row + head * p.q.head_dim, (unit - head * p.runs) * 32);
  });
}

// ---- Many tokens, binary16 cache, pairs half a head apart: one CTA a token, vectors of four

using Four = Pack<float, 4>;

__device__ __forceinline__ void rope_four(const float2* table, int i, Four& a, Four& b) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float2 turn = table[i + e];
    const float first = rope_first(turn, a.at[e], b.at[e]);
    b.at[e] = rope_second(turn, a.at[e], b.at[e]);
    a.at[e] = first;
  }
}

__device__ __forceinline__ void store_halves(const Four& x, std::byte* to) {
  const Pack<std::uint16_t, 4> halves{{saturated_half(x.at[0]), saturated_half(x.at[1]),
                                       saturated_half(x.at[2]), saturated_half(x.at[3])}};
  store_pack(reinterpret_cast<std::uint16_t*>(to), halves);
}

// Returns the cache row of a head in a token's slot.
__device__ __forceinline__ std::byte* row_in_slot(const KvTarget& target, std::int64_t slot,
                                                  int head) {
  const std::int64_t row = std::int64_t{head} * kPageSlots + slot % kPageSlots;
  return target.pages + slot / kPageSlots * target.page_bytes + row * target.shape.bytes;
}

// Four elements of a value on their way to the cache: unit u of the token.
struct ValueUnit {
  Four x;
  int head;
  int e;

  __device__ __forceinline__ static int count(const KvWriteParameters& p) {
    return p.heads * (p.v.shape.dim / 4);
  }
  // Does nothing where there is no unit u.
  __device__ __forceinline__ void load(const KvWriteParameters& p, std::int64_t t, int u) {
    const int fours = p.v.shape.dim / 4;
    head = u / fours;
    e = (u - head * fours) * 4;
    if (head < p.heads) x = load_pack<4>(p.v.x[t] + head * p.v.shape.dim + e);
  }
  __device__ __forceinline__ void store(const KvWriteParameters& p, std::int64_t slot) const {
    if (head >= p.heads) return;
    store_halves(x, row_in_slot(p.v, slot, head) + 2 * e);
  }
};

// Four rope pairs of a key, or four elements that rope does not change.
struct KeyUnit {
  Four a;
  Four b;
  int head;
  int e;  // index of the first element of `a`; those of `b` are p.q.half further on
  bool ropes;

  __device__ __forceinline__ static int of_head(const FusedParameters& p) {
    return (p.write.k.shape.dim - p.q.half) / 4;
  }
  __device__ __forceinline__ static int count(const FusedParameters& p) {
    return p.write.heads * of_head(p);
  }
  __device__ __forceinline__ void load(const FusedParameters& p, std::int64_t t, int u) {
    head = u / of_head(p);
    const int first = (u - head * of_head(p)) * 4;
    ropes = first < p.q.half;
    e = ropes ? first : first + p.q.half;
    if (head >= p.write.heads) return;
    const float* from = p.write.k.x[t] + head * p.write.k.shape.dim + e;
    a = load_pack<4>(from);
    if (ropes) b = load_pack<4>(from + p.q.half);
  }
  __device__ __forceinline__ void store(const FusedParameters& p, std::int64_t slot,
                                        const float2* table) {
    if (head >= p.write.heads) return;
    if (ropes) rope_four(table, e, a, b);
    std::byte* to = row_in_slot(p.write.k, slot, head) + 2 * e;
    store_halves(a, to);
    if (ropes) store_halves(b, to + 2 * p.q.half);
  }
};

// A CTA has little work and mostly waits for memory, so CTAs are small, to have many at a time.
constexpr int kHalfThreads = 128;

__global__ void __launch_bounds__(kHalfThreads) rope_half_write_kernel(FusedParameters p) {
  extern __shared__ __align__(16) float2 table[];
  pdl_trigger();
  pdl_wait();
  const std::int64_t t = blockIdx.x;
  const std::int64_t slot = p.write.slots[t];
  const auto thread = static_cast<int>(threadIdx.x);
  // The first loads are in flight while the table is made.
  constexpr int kValues = 2;
  ValueUnit values[kValues];
  KeyUnit key;
#pragma unroll
  for (int i = 0; i < kValues; ++i) values[i].load(p.write, t, thread + i * kHalfThreads);
  key.load(p, t, thread);
  fill_rope_table(p.q, t, table);
  if (p.rope_table != nullptr) {
    for (int i = thread; i < p.q.half; i += kHalfThreads) p.rope_table[t * p.q.half + i] = table[i];
  }
#pragma unroll
  for (int i = 0; i < kValues; ++i) values[i].store(p.write, slot);
  for (int u = thread + kValues * kHalfThreads; u < ValueUnit::count(p.write); u += kHalfThreads) {
    values[0].load(p.write, t, u);
    values[0].store(p.write, slot);
  }
  key.store(p, slot, table);
  for (int u = thread + kHalfThreads; u < KeyUnit::count(p); u += kHalfThreads) {
    key.load(p, t, u);
    key.store(p, slot, table);
  }
  const int fours = p.q.half / 4;  // of a head
  const int q_heads = p.rope_table == nullptr ? p.q.heads : 0;
  for (int u = thread; u < q_heads * fours; u += kHalfThreads) {
    const int head = u / fours;
    const int i = (u - head * fours) * 4;
    float* at = p.q.x[t] + head * p.q.head_dim + i;
    Four a = load_pack<4>(at);
    Four b = load_pack<4>(at + p.q.half);
    rope_four(table, i, a, b);
    store_pack(at, a);
    store_pack(at + p.q.half, b);
  }
}

bool can_load_fours(const RopeAndWriteArgs& args) {
  constexpr std::int64_t kManyTokens = 64;  // fewer tokens are spread over more CTAs
  const KvLayout& layout = args.write.cache.layout;
  const auto fits = [](const TensorView& x) {
    return x.shape[2] % 4 == 0 && allows_vector_access(x, 4);
  };
  return args.q.x.shape[0] > kManyTokens && layout.type == CacheType::kF16 &&
         args.q.style == RopeStyle::kNeox && args.q.rotated % 8 == 0 && fits(args.q.x) &&
         fits(args.k.x) && fits(args.write.v) && is_aligned(args.write.cache.k, 8) &&
         is_aligned(args.write.cache.v, 8);
}

FusedParameters fused_parameters(const RopeAndWriteArgs& args) {
  const RopeArgs& q = args.q;
  const RopeArgs& k = args.k;
  const KvWriteArgs& write = args.write;
  BL_CHECK(q.positions == k.positions && q.variant == k.variant && q.rotated == k.rotated &&
           q.style == k.style && q.inv_freq.data == k.inv_freq.data &&
           q.scale.data == k.scale.data);
  BL_CHECK(k.x.data == write.k.data && k.x.shape[2] == write.cache.layout.k_dim);
  FusedParameters p{rope_parameters(q), rope_parameters(k), kv_write_parameters(write), 0, 0};
  p.runs = ceil_div(p.q.half, 32);
  p.kv_units = p.write.units();
  return p;
}

void launch_fours(ExecContext& ctx, const FusedParameters& p, std::int64_t tokens) {
  launch(shape_of(ctx, dim3(static_cast<unsigned>(tokens)), dim3(kHalfThreads),
                  static_cast<std::size_t>(p.q.half) * sizeof(float2)),
         rope_half_write_kernel, p);
}

}  // namespace

bool can_write_rope_table(const RopeAndWriteArgs& args) { return can_load_fours(args); }

void write_kv_and_rope_table(ExecContext& ctx, const RopeAndWriteArgs& args, float2* rope_table) {
  BL_CHECK(can_write_rope_table(args));
  FusedParameters p = fused_parameters(args);
  p.rope_table = rope_table;
  launch_fours(ctx, p, args.q.x.shape[0]);
}

void rope_and_write(ExecContext& ctx, const RopeAndWriteArgs& args) {
  const std::int64_t tokens = args.q.x.shape[0];
  if (tokens == 0) return;
  const FusedParameters p = fused_parameters(args);
  if (can_load_fours(args)) {
    launch_fours(ctx, p, tokens);
    return;
  }
  const dim3 grid = unit_grid(ctx, tokens, p.kv_units + p.q.heads * p.runs);
  launch(shape_of(ctx, grid, dim3(kUnitWarps * 32),
                  static_cast<std::size_t>(p.q.half) * sizeof(float2)),
         p.write.widths() == Widths::kAny ? rope_kv_write_kernel<Widths::kAny>
                                          : rope_kv_write_kernel<Widths::kUsual>,
         p);
}

}  // namespace bl::cuda
