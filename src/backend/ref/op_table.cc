#include "backend/ref/ref_backend.h"
#include "backend/ref/ref_ops.h"

namespace bl {
namespace {

constexpr OpTable kRefOps{
    .embed = ref::embed,
    .norm = ref::norm,
    .activate = ref::activate,
    .add = ref::add,
    .scale = ref::scale,
    .gate = ref::gate,
    .clamp = ref::clamp,
    .copy_rows = ref::copy_rows,
    .add_rows = ref::add_rows,
    .matmul = ref::matmul,
    .route = ref::route,
    .experts = ref::experts,
    .rope = ref::rope,
    .kv_write = ref::kv_write,
    .attention = ref::attention,
    .sample = ref::sample,
};

}  // namespace

const OpTable& RefBackend::ops() const { return kRefOps; }

}  // namespace bl
