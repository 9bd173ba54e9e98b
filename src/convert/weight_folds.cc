#include "convert/weight_folds.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "base/check.h"
#include "model/checkpoint_names.h"
#include "model/renamed_source.h"

namespace bl {
namespace {

// 1 or −1, without a pattern that Hadamard's matrix has, too.
float sign_of(std::size_t channel) {
  std::uint64_t x = (channel + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
  return (x >> 63) != 0 ? -1.0f : 1.0f;
}

// The signs of runs of neighbouring channels, the same for each run.
ChannelFold rotation(std::int64_t channels, std::int64_t run) {
  ChannelFold fold;
  fold.run = run;
  for (std::int64_t c = 0; c < channels; ++c) {
    fold.factors.push_back(sign_of(static_cast<std::size_t>(c % run)));
  }
  return fold;
}

enum class StreamSide : std::uint8_t { kNone, kReads, kWrites };

StreamSide stream_side(Role role) {
  switch (role) {
    case Role::kQ:
    case Role::kK:
    case Role::kV:
    case Role::kQkv:
    case Role::kAttentionGate:
    case Role::kGate:
    case Role::kUp:
    case Role::kGateUp:
    case Role::kRouter:
    case Role::kSharedExpertGate:
    case Role::kHead:
      return StreamSide::kReads;
    case Role::kO:
    case Role::kDown:
      return StreamSide::kWrites;
    default:
      return StreamSide::kNone;
  }
}

bool reads_attention_norm(Role role) {
  return role == Role::kQ || role == Role::kK || role == Role::kV || role == Role::kQkv ||
         role == Role::kAttentionGate;
}

// The norm through which a linear reads the residual stream (nn/block.h); a block may lack it.
Role input_norm(const ModelSpec& spec, const LoadTarget& target) {
  if (target.role == Role::kHead) return Role::kFinalNorm;
  if (reads_attention_norm(target.role)) return Role::kAttentionNorm;
  const BlockSpec& block = spec.blocks[static_cast<std::size_t>(target.block)];
  const bool routed =
      target.index != -1 || target.role == Role::kRouter || target.role == Role::kSharedExpertGate;
  if (block.feed_forward && block.moe) return routed ? Role::kMoeNorm : Role::kFeedForwardNorm;
  const bool shares = block.parallel && !block.feed_forward_norm;
  return shares ? Role::kAttentionNorm : Role::kFeedForwardNorm;
}

bool is_input_norm(Role role) {
  return role == Role::kAttentionNorm || role == Role::kFeedForwardNorm || role == Role::kMoeNorm ||
         role == Role::kFinalNorm;
}

bool is_head_norm(Role role) {
  return role == Role::kQNorm || role == Role::kKNorm || role == Role::kVNorm;
}

// Whether the values of a block's heads go to its output unchanged but for weights, head by head.
bool values_are_linear(const AttentionSpec& attention) {
  return !attention.v_norm && !attention.value_is_key && attention.clip == 0.0f &&
         attention.gate != AttentionGate::kSigmoidElement;
}

std::string residual_refusal(const LoadTask& task) {
  if (const auto* norm = std::get_if<NormWork>(&task.work)) {
    if (is_head_norm(task.target.role)) return {};
    if (!is_input_norm(task.target.role)) {
      return "it has norms behind layers, behind the embedding or before its router, which do not "
             "commute with a rotation";
    }
    if (norm->spec.kind == NormKind::kRms) return {};
    return "its norms subtract the mean of all channels, which a rotation changes";
  }
  const auto* matrix = std::get_if<MatrixWork>(&task.work);
  if (matrix == nullptr) return {};
  if (stream_side(task.target.role) == StreamSide::kNone) {
    return "it has linears that combine the residual stream with something else";
  }
  return matrix->normalized ? "its head is normalised row by row" : std::string();
}

bool is_plain(const MatrixWork& work) { return std::holds_alternative<DenseMatrix>(work.matrix); }

class FoldMaker {
 public:
  FoldMaker(const ModelFiles& files, const ModelLoader& loader)
      : loader_(loader), source_(*files.source, CheckpointNames(*loader.spec().arch)) {
    for (const LoadTask& task : loader.load_plan().tasks) {
      if (const auto* norm = std::get_if<NormWork>(&task.work)) {
        norms_[{task.target.block, task.target.role}] = norm;
      }
    }
  }

  void add_residual() {
    const std::int64_t hidden = loader_.spec().hidden;
    const ChannelFold turn = rotation(hidden, hidden);
    for (const LoadTask& task : loader_.load_plan().tasks) {
      if (task.linear < 0) continue;
      MatrixFold& fold = linears_[task.linear];
      if (stream_side(task.target.role) == StreamSide::kWrites) {
        fold.outputs = turn;
        continue;
      }
      fold.inputs = turn;
      const std::vector<float> weights = norm_weights(task.target);
      for (std::size_t c = 0; c < weights.size(); ++c) fold.inputs.factors[c] *= weights[c];
    }
    for (const auto& [place, norm] : norms_) {
      if (!is_input_norm(place.second) || norm->weight.tensor.empty()) continue;
      const float one = norm->spec.unit_offset ? 0.0f : 1.0f;
      folds_.vectors[norm->weight.tensor] = std::make_shared<const std::vector<float>>(
          static_cast<std::size_t>(norm->weight.shape.elements()), one);
    }
    folds_.tables = std::make_shared<const ChannelFold>(turn);
  }

  void add_values() {
    const LoadPlan& plan = loader_.load_plan();
    for (const LoadTask& task : plan.tasks) {
      if (task.target.role != Role::kV) continue;
      const auto block = static_cast<std::size_t>(task.target.block);
      const AttentionSpec& attention = *loader_.spec().blocks[block].attention;
      if (!values_are_linear(attention)) continue;
      const auto reader =
          std::find_if(plan.tasks.begin(), plan.tasks.end(), [&](const LoadTask& o) {
            return o.target.role == Role::kO && o.target.block == task.target.block;
          });
      BL_CHECK(reader != plan.tasks.end());
      const std::int64_t head = attention.head_dim;
      linears_[task.linear].outputs = rotation(head * attention.kv_heads, head);
      linears_[reader->linear].inputs = rotation(head * attention.heads, head);
    }
  }

  ModelFolds take() {
    for (auto& [linear, fold] : linears_) {
      folds_.linears[linear] = std::make_shared<const MatrixFold>(std::move(fold));
    }
    return std::move(folds_);
  }

 private:
  // Returns the weights of the norm before a linear; nothing where it has none.
  std::vector<float> norm_weights(const LoadTarget& target) const {
    const auto found = norms_.find({target.block, input_norm(loader_.spec(), target)});
    if (found == norms_.end() || found->second->weight.tensor.empty()) return {};
    const NormWork& norm = *found->second;
    const HostArray array = source_.read(norm.weight.tensor);
    std::vector<float> weights(static_cast<std::size_t>(array.view.shape.elements()));
    visit_float_dtype(array.view.dtype, [&]<class T>(Tag<T>) {
      const T* values = array.view.as<const T>();
      for (std::size_t c = 0; c < weights.size(); ++c) {
        weights[c] = static_cast<float>(values[c]) + (norm.spec.unit_offset ? 1.0f : 0.0f);
      }
    });
    return weights;
  }

  const ModelLoader& loader_;
  RenamedSource source_;
  std::map<std::pair<std::int32_t, Role>, const NormWork*> norms_;
  std::map<std::int32_t, MatrixFold> linears_;
  ModelFolds folds_;
};

}  // namespace

std::string_view name_of(FoldKind kind) {
  return kind == FoldKind::kResidual ? "residual" : "values";
}

std::string name_of(const FoldSet& kinds) {
  std::string names;
  for (const FoldKind kind : kinds) {
    names += (names.empty() ? "" : ",") + std::string(name_of(kind));
  }
  return names.empty() ? "none" : names;
}

std::optional<FoldSet> folds_named(std::string_view names) {
  FoldSet kinds;
  if (names == "none") return kinds;
  while (true) {
    const std::string_view name = names.substr(0, names.find(','));
    const auto* kind = std::find_if(std::begin(kFoldKinds), std::end(kFoldKinds),
                                    [&](FoldKind one) { return name_of(one) == name; });
    if (kind == std::end(kFoldKinds)) return std::nullopt;
    kinds.insert(*kind);
    if (name.size() == names.size()) return kinds;
    names.remove_prefix(name.size() + 1);
  }
}

std::string fold_refusal(const ModelLoader& loader, FoldKind kind) {
  bool has_values = false;
  for (const LoadTask& task : loader.load_plan().tasks) {
    const auto* matrix = std::get_if<MatrixWork>(&task.work);
    if (matrix != nullptr && !is_plain(*matrix)) return "its weights are quantized";
    if (kind == FoldKind::kResidual) {
      std::string refusal = residual_refusal(task);
      if (!refusal.empty()) return refusal;
    } else if (task.target.role == Role::kV) {
      const auto block = static_cast<std::size_t>(task.target.block);
      has_values = has_values || values_are_linear(*loader.spec().blocks[block].attention);
    }
  }
  if (kind == FoldKind::kResidual || has_values) return {};
  return "no block computes values by a linear of their own that alone decides them";
}

ModelFolds make_folds(const ModelFiles& files, const ModelLoader& loader, const FoldSet& kinds) {
  for (const FoldKind kind : kinds) BL_CHECK(fold_refusal(loader, kind).empty());
  FoldMaker maker(files, loader);
  if (kinds.contains(FoldKind::kResidual)) maker.add_residual();
  if (kinds.contains(FoldKind::kValues)) maker.add_values();
  return maker.take();
}

void rotate_stream(const TensorView& states, Turn turn) {
  const ChannelFold whole = rotation(states.columns(), states.columns());
  // Signs and rotation are each their own inverse.
  const ChannelFold signs{whole.factors, 0}, mix{{}, whole.run};
  if (turn == Turn::kForth) return fold_columns(states, whole);
  fold_columns(states, mix);
  fold_columns(states, signs);
}

}  // namespace bl
