#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "model/model_loader.h"

namespace bl {

// The folds (model/model_folds.h) that conversion knows.
enum class FoldKind : std::uint8_t {
  // Rotates the residual stream: what writes to it and what reads it. The weights of norms go into
  // the linears behind them, since a norm commutes with a rotation only without them (arXiv
  // 2404.00456). Outliers of single channels spread over all.
  kResidual,
  // Rotates the values of each head, and what reads them.
  kValues,
};
inline constexpr FoldKind kFoldKinds[] = {FoldKind::kResidual, FoldKind::kValues};
using FoldSet = std::set<FoldKind>;

// "residual", "values".
std::string_view name_of(FoldKind kind);
// The names of a set with commas between them; "none" for an empty one.
std::string name_of(const FoldSet& kinds);
// The set of such names; nothing where one of them is unknown.
std::optional<FoldSet> folds_named(std::string_view names);

// Why a model cannot have a fold, as what follows "because"; empty: it can. `loader` has read no
// folds yet.
std::string fold_refusal(const ModelLoader& loader, FoldKind kind);

// What the model's tensors become. Each kind must be possible.
ModelFolds make_folds(const ModelFiles& files, const ModelLoader& loader, const FoldSet& kinds);

// Rotates states of the residual stream, F32 [tokens, hidden], as FoldKind::kResidual does, or
// back.
enum class Turn : std::uint8_t { kForth, kBack };
void rotate_stream(const TensorView& states, Turn turn);

}  // namespace bl
