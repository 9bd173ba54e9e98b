#include "convert/fold_trial.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "base/seconds_since.h"
#include "convert/block_calls.h"
#include "convert/expert_pass.h"
#include "convert/output_distributions.h"
#include "convert/rounding.h"
#include "convert/substitute.h"

namespace bl {
namespace {

constexpr std::int64_t kStretch = 128;  // tokens that follow each other in what is compared
constexpr std::int32_t kTrialGroup = 64;

// Few slots at many bits and most at few, as plans have them: folds that even out channels lose
// what such a mix gains, so that one width for all would flatter them.
GroupList trial_groups(std::int64_t slots) {
  struct Part {
    int bits;
    std::int64_t of;  // 1 / of all slots
  };
  GroupList groups;
  std::int64_t left = slots;
  for (const Part part : {Part{6, 16}, Part{5, 16}, Part{4, 4}, Part{3, 1}}) {
    const std::int64_t share = part.of == 1 ? left : slots / part.of / kTrialGroup * kTrialGroup;
    const GroupList own = uniform_groups(part.bits, kTrialGroup, share);
    groups.insert(groups.end(), own.begin(), own.end());
    left -= share;
  }
  return groups;
}

// Returns the texts that outputs are compared on: the first kStretch tokens of each row that is
// held out, then the next ones of each, until there are kTrialTokens.
std::vector<std::vector<std::int32_t>> compared_rows(const Calibration& calibration) {
  std::vector<std::vector<std::int32_t>> rows;
  std::int64_t left = kTrialTokens;
  const auto& held_out = calibration.held_out;
  for (std::size_t i = 0; left > 0; ++i) {
    const auto& row = held_out[i % held_out.size()];
    // The next stretch of a row that was used before.
    const auto first = static_cast<std::int64_t>(i / held_out.size()) * kStretch;
    const std::int64_t length = std::min({left, kStretch, std::ssize(row) - first});
    if (length <= 0) break;
    rows.emplace_back(row.begin() + first, row.begin() + first + length);
    left -= length;
  }
  return rows;
}

// Whether a block is among kTrialBlocks that lie at even distances, the first and the last
// included.
bool is_on_trial(std::size_t block, std::size_t blocks) {
  const std::size_t count = std::min(kTrialBlocks, blocks);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t place = count > 1 ? i * (blocks - 1) / (count - 1) : 0;
    if (place == block) return true;
  }
  return false;
}

// One way to fold, and the states of the model whose trial blocks so far are folded and coarse.
struct Variant {
  FoldSet kinds;
  std::unique_ptr<ModelLoader> loader;  // null: no folds
  Tensor states;                        // F32 [tokens, hidden], of the stream as it is unfolded
  std::vector<double> kl = {};          // per position
  bool turns() const { return kinds.contains(FoldKind::kResidual); }
};

class FoldTrial {
 public:
  explicit FoldTrial(const FoldTrialArgs& args)
      : args_(args),
        backend_(args.job.backend),
        products_(backend_),
        ends_(ModelPart::ends(args.loader, backend_)),
        compared_(compared_rows(args.job.calibration)) {
    for (std::int64_t i = 0; i < args.rows; ++i) {
      const auto& row = args.job.calibration.rows.at(static_cast<std::size_t>(i));
      chunks_.emplace_back(std::span(&row, 1));
      states_.push_back(products_.keep(ends_.embed(chunks_.back()).view()));
    }
    const Tensor start = ends_.embed(compared_);
    base_ = products_.keep(start.view());
    variants_.push_back({FoldSet{}, nullptr, products_.keep(start.view())});
    for (const FoldSet& kinds : args.sets) {
      variants_.push_back({kinds, folded_loader(kinds), products_.keep(start.view())});
    }
  }

  FoldChoice run() {
    const auto start = std::chrono::steady_clock::now();
    const std::size_t blocks = args_.loader.spec().order.size();
    for (std::size_t number = 0; number < blocks; ++number) {
      if (args_.progress) {
        args_.progress(static_cast<std::int64_t>(number), static_cast<std::int64_t>(blocks));
      }
      pass_block(number, is_on_trial(number, blocks), number + 1 < blocks);
    }
    compare();
    FoldChoice choice{.kept = {}, .tried = tried_folds()};
    choice.seconds = seconds_since(start);
    if (args_.progress) {
      args_.progress(static_cast<std::int64_t>(blocks), static_cast<std::int64_t>(blocks));
    }
    return choice;
  }

 private:
  std::unique_ptr<ModelLoader> folded_loader(const FoldSet& kinds) const {
    auto loader = std::make_unique<ModelLoader>(backend_, args_.job.files,
                                                conversion_load_options(args_.job.archs));
    loader->fold(make_folds(args_.job.files, args_.loader, kinds));
    return loader;
  }

  void pass_block(std::size_t number, bool on_trial, bool others_follow) {
    ModelPart plain = ModelPart::block(args_.loader, backend_, number);
    for (Variant& variant : variants_) {
      if (!on_trial) {
        run_compared(plain, variant.states, {});
      } else if (variant.loader) {
        ModelPart folded = ModelPart::block(*variant.loader, backend_, number);
        try_block(folded, variant);
      } else {
        try_block(plain, variant);
      }
    }
    run_compared(plain, base_, {});
    for (std::size_t i = 0; others_follow && i < chunks_.size(); ++i) {
      products_.update(states_[i],
                       [&](const TensorView& x) { plain.run_block(chunks_[i], x, {}); });
    }
  }

  void run_compared(ModelPart& block, const Tensor& states, const CallPlan& plan) {
    products_.update(states, [&](const TensorView& x) { block.run_block(compared_, x, plan); });
  }

  void rotate(const TensorView& states, Turn turn) {
    const Tensor host = products_.to_host(states);
    rotate_stream(host.view(), turn);
    products_.ops().copy(states, products_.from_host(host.view()).view());
  }

  // Rounds all linears of a block and moves the variant behind it.
  void try_block(ModelPart& block, Variant& variant) {
    Substitutes coarse(backend_);
    for (const BlockCall& call : calls_of(block, variant.turns())) {
      if (!call.routed.empty()) round_experts(block, call, coarse);
      if (!call.readers.empty()) round_readers(call, coarse);
    }
    CallPlan plan;
    plan.substitutes = coarse.map();
    products_.update(variant.states, [&](const TensorView& x) {
      if (variant.turns()) rotate(x, Turn::kForth);
      block.run_block(compared_, x, plan);
      if (variant.turns()) rotate(x, Turn::kBack);
    });
  }

  // Runs all rows through a block that is not rounded.
  std::vector<BlockCall> calls_of(ModelPart& block, bool turns) {
    std::vector<BlockCall> calls;
    const CallPlan plan = collecting_plan(products_, block, calls);
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
      const Tensor x = products_.copy(products_.fetch(states_[i]).view());
      if (turns) rotate(x.view(), Turn::kForth);
      block.run_block(chunks_[i], x.view(), plan);
    }
    return calls;
  }

  void round_readers(const BlockCall& call, Substitutes& coarse) {
    const OrderedHessian hessian = order_hessian(products_, call.inputs.hessian.view(),
                                                 call.inputs.tokens, args_.job.quantize.damping);
    for (const LinearSite* linear : call.readers) round(*linear, hessian, coarse);
  }

  void round_experts(ModelPart& block, const BlockCall& call, Substitutes& coarse) {
    for_each_expert({block, products_, call.routed, args_.job.quantize.damping},
                    [&](const LinearSite& linear, const OrderedHessian& hessian) {
                      round(linear, hessian, coarse);
                      return linear.packed;
                    });
  }

  void round(const LinearSite& linear, const OrderedHessian& hessian, Substitutes& coarse) {
    const Tensor wanted =
        in_slot_order(products_, linear.weight, hessian.perm, linear.padded_out());
    Rounding rounding(products_, hessian, wanted.view());
    const Rounding::Result rounded = rounding.run(trial_groups(linear.in()), 0);
    coarse.add(linear, decoded_rows(rounded.matrix, products_.threads()));
  }

  // Runs the head for a few positions at a time, whose logits are in memory.
  void compare() {
    const std::vector<std::int32_t>& ids = compared_.whole.batch.ids;
    for (std::size_t first = 0; first < ids.size(); first += kLogitRows) {
      const std::size_t count = std::min<std::size_t>(kLogitRows, ids.size() - first);
      const std::vector<std::vector<std::int32_t>> row{
          {ids.begin() + static_cast<std::ptrdiff_t>(first),
           ids.begin() + static_cast<std::ptrdiff_t>(first + count)}};
      compare_piece(Chunk(row), first);
    }
  }

  // The head does not look at the order of tokens.
  void compare_piece(const Chunk& piece, std::size_t first) {
    const auto logits_of = [&](const Tensor& states, const ModelPart::ReadLogits& read) {
      const Tensor all = products_.fetch(states);
      const TensorView rows =
          slice_rows(all.view(), static_cast<std::int64_t>(first), piece.tokens());
      ends_.run_head(piece, rows, {}, read);
    };
    std::optional<OutputDistributions> base;
    logits_of(base_, [&](std::int64_t, const TensorView& logits) {
      BL_CHECK(logits.rows() == piece.tokens());
      base.emplace(products_, logits);
    });
    for (Variant& variant : variants_) {
      logits_of(variant.states, [&](std::int64_t, const TensorView& logits) {
        const std::vector<double> kl = base->divergences(logits);
        variant.kl.insert(variant.kl.end(), kl.begin(), kl.end());
      });
    }
  }

  std::vector<TriedFolds> tried_folds() const {
    std::vector<TriedFolds> all;
    const std::vector<double>& none = variants_.front().kl;
    const auto n = static_cast<double>(none.size());
    for (const Variant& variant : variants_) {
      double sum = 0.0, by = 0.0, squares = 0.0;
      for (std::size_t i = 0; i < none.size(); ++i) {
        const double difference = variant.kl[i] - none[i];
        sum += variant.kl[i];
        by += difference;
        squares += difference * difference;
      }
      const double spread = std::max(0.0, squares / n - by / n * by / n);
      all.push_back({variant.kinds, sum / n, std::sqrt(spread / n)});
    }
    return all;
  }

  const FoldTrialArgs& args_;
  Backend& backend_;
  Products products_;
  ModelPart ends_;
  std::vector<Chunk> chunks_;
  std::vector<Tensor> states_;  // of the chunks, in the model as it is
  Chunk compared_;
  Tensor base_;  // its states in the model as it is
  std::vector<Variant> variants_;
};

// The least gain that is kept, relative to the KL divergence without folds. The same rows, rounded
// on a host and on a card, give divergences that differ by up to 6 %
// (bench/ladder/convert_folds.md).
constexpr double kLeastGain = 0.1;

// The set with the least KL divergence, if it is below that of no folds, which are the first, by
// more than its standard error and than roundings differ by chance.
FoldSet best_of(const std::vector<TriedFolds>& all) {
  FoldSet best;
  const double without = all.front().kl;
  double least = without;
  for (const TriedFolds& tried : all) {
    const double noise = std::max(tried.difference_error, kLeastGain * without);
    if (tried.kl >= least || without - tried.kl <= noise) continue;
    least = tried.kl;
    best = tried.kinds;
  }
  return best;
}

// Whether a set holds a kind of fold that lowered the KL divergence by itself.
bool holds_gain(const FoldSet& kinds, const std::vector<TriedFolds>& all) {
  return std::any_of(all.begin(), all.end(), [&](const TriedFolds& tried) {
    return tried.kl < all.front().kl &&
           std::includes(kinds.begin(), kinds.end(), tried.kinds.begin(), tried.kinds.end());
  });
}

FoldSet folds_of(const Json& json, const char* key, const std::string& what) {
  const auto names = json.at(key).get<std::string>();
  const std::optional<FoldSet> kinds = folds_named(names);
  if (!kinds) fail(ErrorCode::kInvalidFile, "{}: there is no fold \"{}\"", what, names);
  return *kinds;
}

}  // namespace

Json to_json(const FoldChoice& choice) {
  Json tried = Json::array();
  for (const TriedFolds& one : choice.tried) {
    tried.push_back({{"folds", name_of(one.kinds)},
                     {"kl", one.kl},
                     {"difference_error", one.difference_error}});
  }
  return {{"kept", name_of(choice.kept)}, {"tried", std::move(tried)}, {"seconds", choice.seconds}};
}

FoldChoice fold_choice_from_json(const Json& json, const std::string& what) {
  try {
    FoldChoice choice;
    choice.kept = folds_of(json, "kept", what);
    for (const Json& one : json.at("tried")) {
      choice.tried.push_back({folds_of(one, "folds", what), one.at("kl").get<double>(),
                              one.at("difference_error").get<double>()});
    }
    choice.seconds = json.at("seconds").get<double>();
    return choice;
  } catch (const Json::exception& error) {
    fail(ErrorCode::kInvalidFile, "{}: the choice of folds is damaged: {}", what, error.what());
  }
}

std::string to_text(const FoldChoice& folds) {
  if (folds.tried.empty() && folds.kept.empty()) return {};
  std::string text = fmt::format("folds: {}", name_of(folds.kept));
  if (folds.tried.empty()) return text;
  std::string tried;
  for (const TriedFolds& one : folds.tried) {
    tried += fmt::format("{}{} {:.4f}", tried.empty() ? "" : ", ", name_of(one.kinds), one.kl);
  }
  text += fmt::format("; KL divergences on rows held out, in a coarse trial of {:.1f} s: {}",
                      folds.seconds, tried);
  return text;
}

FoldChoice try_folds(const FoldTrialArgs& args) {
  BL_CHECK(args.rows > 0 && !args.sets.empty());
  FoldTrialArgs first = args, second = args;
  std::erase_if(first.sets, [](const FoldSet& kinds) { return kinds.size() > 1; });
  FoldChoice choice = FoldTrial(first).run();
  std::erase_if(second.sets, [&](const FoldSet& kinds) {
    return kinds.size() < 2 || !holds_gain(kinds, choice.tried);
  });
  if (!second.sets.empty()) {
    const FoldChoice sets = FoldTrial(second).run();
    choice.tried.insert(choice.tried.end(), sets.tried.begin() + 1, sets.tried.end());
    choice.seconds += sets.seconds;
  }
  choice.kept = best_of(choice.tried);
  return choice;
}

}  // namespace bl
