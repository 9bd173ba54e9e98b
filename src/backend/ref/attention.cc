#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/ref/ref_ops.h"
#include "ops/kv_codec.h"

namespace bl::ref {
namespace {

// One sequence's keys and values, decoded. If the cache is rotated, so are these.
struct DecodedCache {
  std::vector<float> k;  // [kv_heads, k_dim, length]: the inner loop of scores runs over keys
  std::vector<float> v;  // [kv_heads, length, v_dim]
  std::size_t length = 0;
};

DecodedCache decode(ExecContext& ctx, const PagedKvView& cache, const SequenceSpan& sequence) {
  const KvLayout& layout = cache.layout;
  const KvRow k_row = layout.k_row();
  const KvRow v_row = layout.v_row();
  const auto k_dim = static_cast<std::size_t>(layout.k_dim);
  const auto v_dim = static_cast<std::size_t>(layout.v_dim);
  const auto heads = static_cast<std::size_t>(layout.kv_heads);
  DecodedCache decoded;
  decoded.length = static_cast<std::size_t>(sequence.past + sequence.tokens);
  decoded.k.resize(heads * k_dim * decoded.length);
  decoded.v.resize(heads * v_dim * decoded.length);
  for_range(ctx, static_cast<long>(decoded.length), 64, [&](long begin, long end) {
    std::vector<float> key(k_dim);
    for (long position = begin; position < end; ++position) {
      const auto p = static_cast<std::size_t>(position);
      const auto page = static_cast<std::size_t>(sequence.pages[position / kPageSlots]);
      const std::size_t slot = p % kPageSlots;
      for (std::size_t h = 0; h < heads; ++h) {
        const std::size_t row = h * kPageSlots + slot;
        decode_kv_row(k_row, cache.k + page * layout.k_page_bytes() + row * k_row.bytes(),
                      key.data());
        for (std::size_t d = 0; d < k_dim; ++d) {
          decoded.k[(h * k_dim + d) * decoded.length + p] = key[d];
        }
        decode_kv_row(v_row, cache.v + page * layout.v_page_bytes() + row * v_row.bytes(),
                      &decoded.v[(h * decoded.length + p) * v_dim]);
      }
    }
  });
  return decoded;
}

// One query vector of one head.
struct Query {
  std::size_t head = 0;
  std::size_t position = 0;
  const float* q = nullptr;
  float* out = nullptr;
};

// Softmax weights of the keys [first, position]. With sinks they sum to less than one.
std::vector<double> weights_of(const AttentionArgs& args, const DecodedCache& cache,
                               const Query& query, std::size_t first) {
  const KvLayout& layout = args.cache.layout;
  const auto k_dim = static_cast<std::size_t>(layout.k_dim);
  const auto heads = static_cast<std::size_t>(args.q.shape[1]);
  const std::size_t kv_head = query.head / (heads / static_cast<std::size_t>(layout.kv_heads));
  const std::size_t keys = query.position + 1 - first;
  std::vector<float> q(query.q, query.q + k_dim);
  if (layout.k_row().rotated()) rotate_kv_head(q.data(), layout.k_dim);

  std::vector<double> score(keys, 0.0);
  for (std::size_t d = 0; d < k_dim; ++d) {
    const float* k = &cache.k[(kv_head * k_dim + d) * cache.length + first];
    const double qd = q[d];
    for (std::size_t i = 0; i < keys; ++i) score[i] += qd * static_cast<double>(k[i]);
  }
  const double cap = args.softcap;
  const double slope = args.alibi_slopes.empty()
                           ? 0.0
                           : static_cast<double>(args.alibi_slopes.as<float>()[query.head]);
  double top = -std::numeric_limits<double>::infinity();
  if (!args.sinks.empty()) top = static_cast<double>(args.sinks.as<float>()[query.head]);
  for (std::size_t i = 0; i < keys; ++i) {
    score[i] *= static_cast<double>(args.scale);
    if (cap > 0) score[i] = cap * std::tanh(score[i] / cap);
    score[i] -= slope * static_cast<double>(query.position - (first + i));
    top = std::max(top, score[i]);
  }
  double sum = 0.0;
  if (!args.sinks.empty()) {
    sum = std::exp(static_cast<double>(args.sinks.as<float>()[query.head]) - top);
  }
  for (double& value : score) sum += value = std::exp(value - top);
  for (double& value : score) value /= sum;
  return score;
}

void attend(const AttentionArgs& args, const DecodedCache& cache, const Query& query) {
  const KvLayout& layout = args.cache.layout;
  const auto v_dim = static_cast<std::size_t>(layout.v_dim);
  const auto heads = static_cast<std::size_t>(args.q.shape[1]);
  const std::size_t kv_head = query.head / (heads / static_cast<std::size_t>(layout.kv_heads));
  const auto window = static_cast<std::size_t>(args.window);
  const std::size_t first =
      window > 0 && query.position + 1 > window ? query.position + 1 - window : 0;
  const std::vector<double> weights = weights_of(args, cache, query, first);
  std::vector<double> sum(v_dim, 0.0);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float* v = &cache.v[(kv_head * cache.length + first + i) * v_dim];
    for (std::size_t d = 0; d < v_dim; ++d) sum[d] += weights[i] * static_cast<double>(v[d]);
  }
  for (std::size_t d = 0; d < v_dim; ++d) query.out[d] = static_cast<float>(sum[d]);
  if (layout.v_row().rotated()) rotate_kv_head(query.out, layout.v_dim);
}

}  // namespace

void kv_write(ExecContext& ctx, const KvWriteArgs& args) {
  const KvLayout& layout = args.cache.layout;
  const KvRow k_row = layout.k_row();
  const KvRow v_row = layout.v_row();
  for_range(ctx, args.k.shape[0], 4, [&](long begin, long end) {
    for (long t = begin; t < end; ++t) {
      const std::int64_t page = args.slots[t] / kPageSlots;
      const std::int64_t slot = args.slots[t] % kPageSlots;
      std::byte* k = args.cache.k + static_cast<std::size_t>(page) * layout.k_page_bytes();
      std::byte* v = args.cache.v + static_cast<std::size_t>(page) * layout.v_page_bytes();
      for (int h = 0; h < layout.kv_heads; ++h) {
        const auto row = static_cast<std::size_t>(h * kPageSlots + slot);
        encode_kv_row(k_row, args.k.row<float>(t) + h * layout.k_dim, k + row * k_row.bytes());
        encode_kv_row(v_row, args.v.row<float>(t) + h * layout.v_dim, v + row * v_row.bytes());
      }
    }
  });
}

void attention(ExecContext& ctx, const AttentionArgs& args) {
  const std::int64_t heads = args.q.shape[1];
  for (const SequenceSpan& sequence : args.sequences) {
    const DecodedCache cache = decode(ctx, args.cache, sequence);
    for_range(ctx, heads * sequence.tokens, 4, [&](long begin, long end) {
      for (long i = begin; i < end; ++i) {
        const std::int64_t h = i / sequence.tokens;
        const std::int64_t token = i % sequence.tokens;
        const std::int64_t row = sequence.first_token + token;
        attend(args, cache,
               {.head = static_cast<std::size_t>(h),
                .position = static_cast<std::size_t>(sequence.past + token),
                .q = args.q.row<float>(row) + h * args.cache.layout.k_dim,
                .out = args.out.row<float>(row) + h * args.cache.layout.v_dim});
      }
    });
  }
}

}  // namespace bl::ref
