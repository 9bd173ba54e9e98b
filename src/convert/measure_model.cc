#include "convert/measure_model.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/check.h"
#include "convert/block_calls.h"
#include "convert/conversion_source.h"
#include "convert/expert_pass.h"
#include "convert/output_distributions.h"
#include "convert/rounding.h"
#include "convert/substitute.h"

namespace bl {
namespace {

constexpr int kRatioBits = 4;  // the other sizes are measured with this width
constexpr int kTrialBits = 3;  // of the variant that a sensitivity is measured with
constexpr std::int64_t kTrialRowTokens = 128;

std::vector<double> run_errors(const std::vector<double>& slot_errors) {
  std::vector<double> errors(slot_errors.size() / 32, 0.0);
  for (std::size_t k = 0; k < slot_errors.size(); ++k) errors[k / 32] += slot_errors[k];
  return errors;
}

// Adds the curves of another group size for all widths: what it changes at kRatioBits (`errors`) is
// taken for what it changes at every width.
void add_scaled_curves(LinearMeasurement& linear, const std::vector<double>& errors,
                       std::int32_t size) {
  const std::vector<WidthCurve> common = linear.curves;
  const auto at_ratio = std::find_if(common.begin(), common.end(), [](const WidthCurve& curve) {
    return curve.bits == kRatioBits && curve.group_size == kMeasuredGroup;
  });
  for (const WidthCurve& curve : common) {
    if (curve.group_size != kMeasuredGroup) continue;
    WidthCurve scaled{curve.bits, size, curve.errors};
    for (std::size_t run = 0; run < errors.size(); ++run) {
      const double base = at_ratio->errors[run];
      if (base > 0.0) scaled.errors[run] *= errors[run] / base;
    }
    linear.curves.push_back(std::move(scaled));
  }
}

class MeasurePass {
 public:
  explicit MeasurePass(const MeasureArgs& args) : args_(args), products_(args.backend) {
    ModelPart ends = ModelPart::ends(args.loader, args.backend);
    const auto rows = static_cast<std::size_t>(args.rows);
    BL_CHECK(rows <= args.calibration.rows.size());
    for (std::size_t i = 0; i < rows; ++i) {
      chunks_.emplace_back(std::span(&args.calibration.rows[i], 1));
      states_.push_back(products_.keep(ends.embed(chunks_.back()).view()));
      result_.tokens += chunks_.back().tokens();
    }
    trial_.emplace_back(trial_rows());
    base_ = products_.keep(ends.embed(trial_.front()).view());
    result_.sensitivity_tokens = trial_.front().tokens() / 2;
  }

  ErrorMeasurement run() {
    const auto blocks = static_cast<std::int64_t>(args_.loader.spec().order.size());
    for (std::int64_t number = 0; number < blocks; ++number) {
      if (args_.progress) args_.progress(number, blocks + 1);
      measure_block(static_cast<std::size_t>(number));
    }
    if (args_.progress) args_.progress(blocks, blocks + 1);
    find_sensitivities();
    warn_of_unreached(unreached_);
    return std::move(result_);
  }

 private:
  // Short stretches of different rows, so that the positions are of different texts; of rows that
  // the losses do not come from, where there are any. They begin in the middles of the rows; once
  // all rows were used, the next ones follow, and begin anew at the row's end.
  std::vector<std::vector<std::int32_t>> trial_rows() const {
    const auto measured = static_cast<std::size_t>(args_.rows);
    auto others = std::span(args_.calibration.rows).subspan(measured);
    if (others.empty()) others = args_.calibration.rows;
    std::vector<std::vector<std::int32_t>> rows;
    std::int64_t left = args_.sensitivity_tokens;
    for (std::size_t i = 0; left > 0; ++i) {
      const auto& row = others[i % others.size()];
      const auto length = std::min<std::int64_t>({left, kTrialRowTokens, std::ssize(row)});
      const auto turn = static_cast<std::int64_t>(i / others.size());
      if (turn * kTrialRowTokens >= std::ssize(row)) break;  // there are no more
      const std::int64_t places = std::ssize(row) - length + 1;
      const auto first = ((std::ssize(row) - length) / 2 + turn * kTrialRowTokens) % places;
      rows.emplace_back(row.begin() + first, row.begin() + first + length);
      left -= length;
    }
    return rows;
  }

  void measure_block(std::size_t number) {
    ModelPart block = ModelPart::block(args_.loader, args_.backend, number);
    std::vector<BlockCall> calls;
    const CallPlan plan = collecting_plan(products_, block, calls);
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
      products_.update(states_[i],
                       [&](const TensorView& x) { block.run_block(chunks_[i], x, plan); });
    }
    for (const Tensor& variant : variants_) run_trial(block, variant, {});
    for (const BlockCall& call : calls) {
      if (!call.routed.empty()) measure_experts(block, call);
      if (!call.readers.empty()) measure_readers(block, call);
    }
    run_trial(block, base_, {});
  }

  void run_trial(ModelPart& block, const Tensor& states, const CallPlan& plan) {
    products_.update(states,
                     [&](const TensorView& x) { block.run_block(trial_.front(), x, plan); });
  }

  void measure_readers(ModelPart& block, const BlockCall& call) {
    const OrderedHessian hessian =
        order_hessian(products_, call.inputs.hessian.view(), call.inputs.tokens, args_.damping);
    for (const LinearSite* linear : call.readers) {
      Trial trial{Substitutes(args_.backend), 0.0};
      measure_linear(*linear, hessian, trial);
      add_variant(block, trial, 1);
    }
  }

  // All gates of a layer are coarse in one variant, all ups in another one, and all downs: the
  // states of one variant per expert would be more than fits into memory.
  void measure_experts(ModelPart& block, const BlockCall& call) {
    const ExpertWeights& kinds = call.routed.front().routed->all.front();
    std::vector<Trial> trials;
    for (const PackedMatrix* kind : {kinds.gate, kinds.up, kinds.down}) {
      if (block.linear_of(kind) == nullptr) continue;  // none, or one that stays plain
      trials.push_back({Substitutes(args_.backend), 0.0});
    }
    std::size_t measured = 0;
    const std::size_t first = result_.linears.size();
    unreached_ +=
        for_each_expert({block, products_, call.routed, args_.damping},
                        [&](const LinearSite& linear, const OrderedHessian& hessian) {
                          measure_linear(linear, hessian, trials[measured++ % trials.size()]);
                          return linear.packed;
                        });
    for (std::size_t i = 0; i < trials.size(); ++i) add_variant(block, trials[i], 0);
    for (std::size_t i = first; i < result_.linears.size(); ++i) {
      variant_of_.push_back(variants_.size() - trials.size() + (i - first) % trials.size());
    }
  }

  // Coarse matrices on trial, and the sum of their losses.
  struct Trial {
    Substitutes coarse;
    double loss = 0.0;
  };

  void measure_linear(const LinearSite& linear, const OrderedHessian& hessian, Trial& trial) {
    const Tensor wanted =
        in_slot_order(products_, linear.weight, hessian.perm, linear.padded_out());
    Rounding rounding(products_, hessian, wanted.view());
    LinearMeasurement measured{.key = linear.key, .in = linear.in(), .out = linear.padded_out()};
    const auto measure = [&](int bits, std::int32_t size) {
      const GroupList groups = uniform_groups(bits, size, linear.in());
      if (bits != kTrialBits) return run_errors(rounding.slot_errors(groups));
      const Rounding::Result rounded = rounding.run(groups, 0);
      trial.coarse.add(linear, decoded_rows(rounded.matrix, products_.threads()));
      trial.loss += rounded.error;
      return run_errors(rounded.slot_errors);
    };
    for (const int bits : kMeasuredWidths) {
      measured.curves.push_back({bits, kMeasuredGroup, measure(bits, kMeasuredGroup)});
    }
    for (const std::int32_t size : kOtherGroupSizes) {
      const std::vector<double> errors = measure(kRatioBits, size);
      add_scaled_curves(measured, errors, size);
    }
    for (const WidthCurve& curve : measured.curves) {
      for (const double error : curve.errors) check_loss(linear.key, error);
    }
    result_.linears.push_back(std::move(measured));
  }

  // The states of the model in which the matrices on trial alone are rounded. `linears`: how many
  // of the last ones belong to it.
  void add_variant(ModelPart& block, const Trial& trial, std::size_t linears) {
    variants_.push_back(products_.keep(products_.fetch(base_).view()));
    CallPlan plan;
    plan.substitutes = trial.coarse.map();
    run_trial(block, variants_.back(), plan);
    trial_losses_.push_back(trial.loss);
    variant_of_.insert(variant_of_.end(), linears, variants_.size() - 1);
  }

  // The states at every second position of the trial rows, F32 [positions, hidden]. Neighbours say
  // much the same, and the head takes a third of the time of a variant.
  Tensor compared(const Tensor& states) {
    const Tensor rows = products_.fetch(states);
    TensorView second = rows.view();
    second.data = rows.view().row<float>(1);
    second.shape = {rows.view().rows() / 2, rows.view().columns()};
    second.row_stride *= 2;
    return products_.copy(second);
  }

  // The tokens of these positions, as one sequence; the head does not look at order.
  Chunk compared_tokens() const {
    const std::vector<std::int32_t>& ids = trial_.front().whole.batch.ids;
    std::vector<std::vector<std::int32_t>> row(1);
    for (std::size_t i = 1; i < ids.size(); i += 2) row[0].push_back(ids[i]);
    return Chunk(row);
  }

  void find_sensitivities() {
    ModelPart ends = ModelPart::ends(args_.loader, args_.backend);
    std::vector<OutputDistributions> base;
    const Chunk chunk = compared_tokens();
    ends.run_head(chunk, compared(base_).view(), {}, [&](std::int64_t, const TensorView& logits) {
      base.emplace_back(products_, logits);
    });
    const auto tokens = static_cast<double>(chunk.tokens());
    std::vector<double> sensitivities;
    for (std::size_t i = 0; i < variants_.size(); ++i) {
      double sum = 0.0;
      std::size_t piece = 0;
      ends.run_head(chunk, compared(variants_[i]).view(), {},
                    [&](std::int64_t, const TensorView& logits) {
                      const std::vector<double> rows = base[piece++].divergences(logits);
                      sum = std::accumulate(rows.begin(), rows.end(), sum);
                    });
      const double loss = trial_losses_[i];
      sensitivities.push_back(loss > 0.0 ? std::max(sum / tokens, 0.0) / loss : 0.0);
    }
    for (std::size_t i = 0; i < result_.linears.size(); ++i) {
      result_.linears[i].sensitivity = sensitivities[variant_of_[i]];
      check_loss(result_.linears[i].key, result_.linears[i].sensitivity);
    }
  }

  const MeasureArgs& args_;
  Products products_;
  std::vector<Chunk> chunks_;
  std::vector<Tensor> states_;
  std::vector<Chunk> trial_;  // the one chunk that sensitivities are measured on
  Tensor base_;               // its states in the whole model
  std::vector<Tensor> variants_;
  std::vector<double> trial_losses_;
  std::vector<std::size_t> variant_of_;  // per linear of the result
  int unreached_ = 0;                    // experts
  ErrorMeasurement result_;
};

}  // namespace

std::int64_t default_sensitivity_tokens(const Backend& backend) {
  return backend.reads_host_memory() ? 256 : 1024;
}

ErrorMeasurement measure_model(const MeasureArgs& args) { return MeasurePass(args).run(); }

}  // namespace bl
