#include "engine/cache_loss.h"

#include <algorithm>
#include <cmath>

#include "engine/step_runner.h"
#include "ops/kv_codec.h"
#include "ops/recording_table.h"
#include "tensor/seeded_values.h"

namespace bl {
namespace {

constexpr std::int64_t kProbeTokens = 256;
constexpr std::int64_t kProbeQueries = 8;  // the last ones, which see the most keys
constexpr std::uint64_t kProbeSeed = 11;

// x as the cache gives it back, minus x, in the model's basis. `bytes` is room for a coded row.
void coding_error(const KvRow& row, const float* x, std::span<std::byte> bytes, float* error) {
  encode_kv_row(row, x, bytes.data());
  decode_kv_row(row, bytes.data(), error);
  if (row.rotated()) rotate_kv_head(error, row.dim);
  for (int i = 0; i < row.dim; ++i) error[i] -= x[i];
}

double variance(std::span<const double> values) {
  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  const auto n = static_cast<double>(values.size());
  return std::max(0.0, squares / n - (sum / n) * (sum / n));
}

// The queries and keys of one layer, in host memory. The last layer may have fewer queries than
// keys.
struct LayerHeads {
  TensorView q;           // F32 [queries, heads, k_dim]
  TensorView k;           // F32 [tokens, kv_heads, k_dim]
  std::int64_t past = 0;  // the position of the first query
  float scale = 1;
  std::int64_t window = 0;  // 0: none
};

// The errors of the keys of one head, [tokens, k_dim].
std::vector<float> coding_errors(const TensorView& k, std::int64_t kv_head, CacheType type) {
  const std::int64_t dim = k.shape[2];
  const KvRow row = KvLayout{type, static_cast<int>(k.shape[1]), static_cast<int>(dim), 0}.k_row();
  std::vector<std::byte> bytes(row.bytes());
  std::vector<float> errors(static_cast<std::size_t>(k.rows() * dim));
  for (std::int64_t t = 0; t < k.rows(); ++t) {
    coding_error(row, k.row<float>(t) + kv_head * dim, bytes, errors.data() + t * dim);
  }
  return errors;
}

// The mean over heads and queries of the variance over keys of scale · q·e.
double score_variance(const LayerHeads& layer, CacheType type) {
  const std::int64_t dim = layer.k.shape[2];
  const std::int64_t queries = std::min(kProbeQueries, layer.q.rows());
  const std::int64_t group = layer.q.shape[1] / layer.k.shape[1];
  std::vector<float> errors;
  std::vector<double> scores;
  double sum = 0;
  for (std::int64_t head = 0; head < layer.q.shape[1]; ++head) {
    if (head % group == 0) errors = coding_errors(layer.k, head / group, type);
    for (std::int64_t row = layer.q.rows() - queries; row < layer.q.rows(); ++row) {
      const float* q = layer.q.row<float>(row) + head * dim;
      const std::int64_t end = layer.past + row + 1;  // of the keys that it sees
      const std::int64_t seen = layer.window > 0 ? std::min(layer.window, end) : end;
      scores.clear();
      for (std::int64_t key = end - seen; key < end; ++key) {
        const float* error = errors.data() + key * dim;
        double score = 0;
        for (std::int64_t i = 0; i < dim; ++i) score += double{q[i]} * double{error[i]};
        scores.push_back(score * double{layer.scale});
      }
      sum += variance(scores);
    }
  }
  return sum / static_cast<double>(queries * layer.q.shape[1]);
}

float largest_of(const TensorView& heads) {
  float largest = 0;
  for (std::int64_t t = 0; t < heads.rows(); ++t) {
    const float* row = heads.row<float>(t);
    for (std::int64_t i = 0; i < heads.columns(); ++i) {
      largest = std::max(largest, std::abs(row[i]));
    }
  }
  return largest;
}

// Measures what attention reads: the keys that a layer writes, then its queries.
class LossObserver : public OpObserver {
 public:
  LossObserver(Backend& backend, std::span<const CacheType> types)
      : backend_(backend), types_(types), sums_(types.size()), losses_(types.size()) {}

  void before(ExecContext&, const OpCall& call) override {
    if (call.kv_write != nullptr) take_keys(*call.kv_write);
    if (call.attention != nullptr) measure(*call.attention);
  }
  void after(ExecContext&, const OpCall&) override {}

  std::vector<CacheLoss> losses() const {
    std::vector<CacheLoss> losses = losses_;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      if (layers_ > 0) losses[i].score = std::sqrt(sums_[i] / static_cast<double>(layers_));
    }
    return losses;
  }

 private:
  Tensor on_host(const TensorView& heads) const {
    Tensor copy = make_host_tensor(DType::kF32, heads.shape);
    backend_.download(copy.view(), heads);
    return copy;
  }

  void take_keys(const KvWriteArgs& args) {
    keys_ = on_host(args.k);
    keys_of_ = args.cache.k;
  }

  void measure(const AttentionArgs& args) {
    // The keys that an earlier layer wrote have been measured there.
    if (args.cache.k != keys_of_) return;
    keys_of_ = nullptr;
    const Tensor queries = on_host(args.q);
    const LayerHeads layer{.q = queries.view(),
                           .k = keys_.view(),
                           .past = args.sequences[0].past,
                           .scale = args.scale,
                           .window = args.window};
    const float largest = largest_of(layer.k);
    for (std::size_t i = 0; i < types_.size(); ++i) {
      const double found = score_variance(layer, types_[i]);
      sums_[i] += found;
      CacheLoss& loss = losses_[i];
      if (std::sqrt(found) > loss.worst_layer || layers_ == 0) {
        loss = {0, std::sqrt(found), layers_, largest};
      }
    }
    ++layers_;
  }

  Backend& backend_;
  std::span<const CacheType> types_;
  std::vector<double> sums_;  // of the layers' variances, by type
  std::vector<CacheLoss> losses_;
  std::int64_t layers_ = 0;
  Tensor keys_;
  const std::byte* keys_of_ = nullptr;  // the pages that keys_ were written to
};

}  // namespace

bool may_lose(CacheType keys) { return keys != CacheType::kF32 && keys != CacheType::kF16; }

std::vector<CacheLoss> measure_cache_loss(ModelSession& session, std::span<const CacheType> keys) {
  const std::int64_t tokens = std::min({kProbeTokens, session.step_tokens(), session.context()});
  const auto vocabulary =
      static_cast<std::uint64_t>(std::min(session.choosable(), session.model().embedding_rows()));
  Sequence sequence = session.new_sequence();
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::uint64_t word = seeded_word(kProbeSeed, static_cast<std::uint64_t>(i));
    sequence.ids.push_back(static_cast<std::int32_t>(word % vocabulary));
  }
  sequence.reach = tokens;
  LossObserver observer(session.backend(), keys);
  RecordingTable table(session.backend().ops(), observer);
  // Without the ops that do more than write keys, or attend, both pass by one after the other.
  table.rope_and_write = nullptr;
  table.rope_write_attend = nullptr;
  session.use_ops(&table);
  struct Restored {
    ModelSession& session;
    ~Restored() { session.use_ops(nullptr); }
  } const restored{session};
  StepRunner runner(session);
  const StepItem item{.sequence = &sequence, .count = tokens, .logits = LogitRows::kLast};
  runner.run({&item, 1});
  return observer.losses();
}

}  // namespace bl
