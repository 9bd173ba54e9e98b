#pragma once
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/sample.h"

namespace bl {

// A backend at a glance: one function an op. A missing line is a missing op, and a test looks.
struct OpTable {
  void (*embed)(ExecContext&, const EmbedArgs&) = nullptr;
  void (*norm)(ExecContext&, const NormArgs&) = nullptr;
  void (*activate)(ExecContext&, const ActivateArgs&) = nullptr;
  void (*add)(ExecContext&, const AddArgs&) = nullptr;
  void (*scale)(ExecContext&, const ScaleArgs&) = nullptr;
  void (*gate)(ExecContext&, const GateArgs&) = nullptr;
  void (*clamp)(ExecContext&, const ClampArgs&) = nullptr;
  void (*copy_rows)(ExecContext&, const CopyRowsArgs&) = nullptr;
  void (*add_rows)(ExecContext&, const AddRowsArgs&) = nullptr;
  void (*matmul)(ExecContext&, const MatmulArgs&) = nullptr;
  void (*route)(ExecContext&, const RouteArgs&) = nullptr;
  void (*experts)(ExecContext&, const ExpertsArgs&) = nullptr;
  void (*rope)(ExecContext&, const RopeArgs&) = nullptr;
  void (*kv_write)(ExecContext&, const KvWriteArgs&) = nullptr;
  void (*attention)(ExecContext&, const AttentionArgs&) = nullptr;

  // What a backend can do in one launch besides. Callers look, and take the ops above where it
  // cannot.
  void (*rope_and_write)(ExecContext&, const RopeAndWriteArgs&) = nullptr;
  // That, then attention, whose queries are those of `rope` (and may be left as they were).
  void (*rope_write_attend)(ExecContext&, const RopeAndWriteArgs& rope,
                            const AttentionArgs&) = nullptr;
  void (*argmax)(ExecContext&, const ArgmaxArgs&) = nullptr;
  // Where logits would have to come to the host first. The CPU's own way is sample/, which is
  // faster there.
  void (*sample)(ExecContext&, const SampleArgs&) = nullptr;
  // Width of the StagedInput of `reader` in a step of so many tokens; 0: F32 is passed on. Ops take
  // and leave one only where this is set.
  std::int64_t (*staged_input_width)(const ExecContext&, const PackedMatrix& reader,
                                     std::int64_t tokens) = nullptr;
  // How many parts of its sum a product of so many tokens that adds to its output would leave
  // beside it (MatmulArgs::partials_out), since it is faster so: up to kMaxPartials. The row is the
  // same only but for rounding.
  std::int64_t (*partials_left)(const ExecContext&, const PackedMatrix& weight,
                                std::int64_t tokens) = nullptr;
  // Whether act(gate) and up are rather left to the product of `down`, which multiplies them: see
  // ActivateArgs::deferred_gate_mul.
  bool (*defers_gate_mul)(const ExecContext&, const GatedMatrices&, const ActivateArgs&) = nullptr;
  bool matmul_normalises = false;  // MatmulArgs::norm may be given
  bool matmul_activates = false;   // MatmulArgs::activation may be given
};

}  // namespace bl
