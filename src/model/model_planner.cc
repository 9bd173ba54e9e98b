#include "model/model_planner.h"

#include <algorithm>

#include "base/error.h"
#include "model/block_planner.h"

namespace bl {
namespace {

void plan_table(LoadPlanner& planner, Role role, const Names& names,
                const LoadPlanner::TableShape& shape) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return planner.has_tensor(name + ".weight");
  });
  planner.table({.role = role}, (found != names.end() ? *found : names.at(0)) + ".weight", shape);
}

void plan_embedding(LoadPlanner& planner, const ModelSpec& spec, bool embed_host) {
  const ArchSpec& arch = *spec.arch;
  plan_table(planner, Role::kEmbedding, arch.embed, {spec.vocab, spec.hidden, embed_host});
  for (const std::string& name : arch.embed) {
    const TensorInfo* info = planner.source().find(name + ".weight");
    if (info == nullptr) continue;
    planner.add_site(
        name,
        {.in = info->shape[0], .out = spec.hidden, .is_embedding = true, .replaceable = true});
    break;
  }
  if (!arch.positions.empty()) {
    plan_table(planner, Role::kPositions, arch.positions,
               {std::min(spec.context, spec.max_positions), spec.hidden, false});
    if (spec.context > spec.max_positions) {
      fail(ErrorCode::kInvalidArgument,
           "a context of {} tokens is more than the {} positions this model has learned",
           spec.context, spec.max_positions);
    }
  }
  if (spec.embed_norm) {
    planner.norm({.role = Role::kEmbedNorm}, *spec.embed_norm,
                 {"", arch.embed_norm->name, {Shape{spec.hidden}}});
  }
}

// Adds every name that adapters may know the head by, whichever of them the files use.
void add_head_sites(LoadPlanner& planner, const ModelSpec& spec, std::int32_t linear,
                    bool replaceable) {
  for (const std::string& name : spec.arch->head) {
    planner.add_site(name, {.in = spec.hidden,
                            .out = spec.vocab,
                            .parts = {{.linear = linear, .count = spec.vocab}},
                            .replaceable = replaceable});
  }
}

// Gives a tied head the bias that is stored under its own name, as transformers does.
std::vector<std::string> add_head_bias(const LoadPlanner& planner, const ModelSpec& spec,
                                       DenseMatrix& matrix) {
  for (const std::string& name : spec.arch->head) {
    const std::string tensor = name + ".bias";
    const TensorInfo* info = planner.source().find(tensor);
    if (info == nullptr) continue;
    if (info->shape != Shape{matrix.out()}) {
      fail(ErrorCode::kInvalidFile,
           "{}: tensor {} has the shape {}, must have one value for each of {} tokens",
           spec.config_file, tensor, info->shape.to_string(), matrix.out());
    }
    matrix.bias = planner.source().read(tensor);
    return {tensor};
  }
  return {};
}

// Plans a head that is tied to the embedding, or whose rows are normalised.
void plan_dense_head(LoadPlanner& planner, const ModelSpec& spec, const std::string& tensor) {
  LoadHints hints;
  hints.in = spec.hidden;
  hints.out = spec.vocab;
  hints.more_out = true;
  if (spec.normalize_head) {
    planner.set_site_refusal("the rows of its weight are scaled to length 1");
  }
  DenseMatrix matrix = load_dense_matrix(planner.source(), tensor, hints);
  std::vector<std::string> tensors = add_head_bias(planner, spec, matrix);
  tensors.push_back(tensor);
  const bool replaceable = matrix.bias.view.empty();
  const std::int32_t linear = planner.linear(
      {.role = Role::kHead}, LoadPlanner::PartLinear{.matrix = std::move(matrix),
                                                     .tensors = std::move(tensors),
                                                     .out = spec.vocab,
                                                     .normalized = spec.normalize_head,
                                                     .counted = planner.reads(tensor),
                                                     .key = spec.arch->head.at(0)});
  add_head_sites(planner, spec, linear, replaceable);
  planner.set_site_refusal("");
}

// A head that is stored is used even if the config says that it is tied to the embedding.
void plan_head(LoadPlanner& planner, const ModelSpec& spec) {
  const ArchSpec& arch = *spec.arch;
  const std::string* found = planner.pick("", arch.head);
  if (found != nullptr && !(spec.normalize_head && planner.has_tensor(*found + ".weight"))) {
    // A head that an adapter brings has no bias, so it cannot replace one that has.
    const bool replaceable = !planner.has_tensor(*found + ".bias");
    const std::int32_t linear = planner.linear(
        {.role = Role::kHead}, *found,
        {.in = spec.hidden, .out = spec.vocab, .more_out = true, .replaceable = replaceable});
    add_head_sites(planner, spec, linear, replaceable);
    return;
  }
  if (found == nullptr && !spec.tied) {
    fail(ErrorCode::kNotFound,
         "{}: the model has no output head {}.weight, and tie_word_embeddings is not true",
         spec.config_file, arch.head.at(0));
  }
  if (found == nullptr) found = planner.pick("", arch.embed);
  plan_dense_head(planner, spec, (found != nullptr ? *found : arch.embed.at(0)) + ".weight");
}

}  // namespace

void plan_model(LoadPlanner& planner, const ModelSpec& spec, bool embed_host) {
  plan_embedding(planner, spec, embed_host);
  BlockPlanner blocks(spec, planner);
  for (std::size_t i = 0; i < spec.blocks.size(); ++i) {
    if (spec.runs(i)) blocks.plan(i);
  }
  if (spec.final_norm) {
    planner.norm({.role = Role::kFinalNorm}, *spec.final_norm,
                 {"", spec.arch->final_norm->name, {Shape{spec.hidden}}});
  }
  plan_head(planner, spec);
}

}  // namespace bl
