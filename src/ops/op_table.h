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
  // What may be fused around GEMMs; null: nothing. Layers ask through fusion_of().
  GemmFusion (*gemm_fusion)(const ExecContext&, const GemmFusionQuery&) = nullptr;
};

// The one question of layers about fusion: nothing is fused where the context forbids it or the
// backend offers nothing.
inline GemmFusion fusion_of(const ExecContext& ctx, const GemmFusionQuery& query) {
  if (!ctx.may_fuse() || ctx.ops->gemm_fusion == nullptr) return {};
  return ctx.ops->gemm_fusion(ctx, query);
}

}  // namespace bl
