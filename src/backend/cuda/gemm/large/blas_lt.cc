#include "backend/cuda/gemm/large/blas_lt.h"

#include <dlfcn.h>

#include <algorithm>
#include <string>

#include "backend/cuda/device/cuda_check.h"
#include "backend/cuda/layout/packed_size.h"
#include "base/check.h"
#include "base/error.h"

namespace bl::cuda {
namespace {

cudaDataType_t type_of(DType type) {
  switch (type) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kF16:
      return CUDA_R_16F;
    default:
      BL_CHECK(type == DType::kBF16);
      return CUDA_R_16BF;
  }
}

// Returns the largest power of two that divides an address, up to the 256 that cuBLASLt
// distinguishes.
std::uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  const std::uintptr_t lowest = address & (~address + 1);
  return static_cast<std::uint32_t>(std::min<std::uintptr_t>(lowest == 0 ? 256 : lowest, 256));
}

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    fail(ErrorCode::kDevice, "cuBLASLt: status {} from {}", static_cast<int>(status), what);
  }
}

}  // namespace

// The functions that are used, looked up by name.
struct BlasLt::Library {
  void* handle = nullptr;
  cublasLtHandle_t lt = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;

  Library() {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
      handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (handle != nullptr) break;
    }
    if (handle == nullptr) {
      fail(ErrorCode::kUnsupported,
           "the CUDA backend needs libcublasLt.so.13 or .12 (of the CUDA toolkit or the "
           "nvidia-cublas package) in the loader's path");
    }
    find(create, "cublasLtCreate");
    find(destroy, "cublasLtDestroy");
    find(matmul, "cublasLtMatmul");
    find(desc_create, "cublasLtMatmulDescCreate");
    find(desc_destroy, "cublasLtMatmulDescDestroy");
    find(desc_set, "cublasLtMatmulDescSetAttribute");
    find(layout_create, "cublasLtMatrixLayoutCreate");
    find(layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(preference_create, "cublasLtMatmulPreferenceCreate");
    find(preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
  }
  template <class F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(handle, name));
    if (function == nullptr) fail(ErrorCode::kUnsupported, "libcublasLt has no {}", name);
  }
};

// One shape, with the algorithm that cuBLASLt suggests for it.
struct BlasLt::Plan {
  explicit Plan(const Library& l) : library(l) {}
  ~Plan() {
    for (cublasLtMatrixLayout_t layout : {a, b, c}) {
      if (layout != nullptr) library.layout_destroy(layout);
    }
    if (desc != nullptr) library.desc_destroy(desc);
  }
  const Library& library;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t c = nullptr;
  cublasLtMatmulHeuristicResult_t choice{};
};

BlasLt::BlasLt(DeviceMemory& memory) : library_(std::make_unique<Library>()) {
  check(library_->create(&library_->lt), "cublasLtCreate");
  workspace_ = memory.take(kBlasWorkspaceBytes);
}

BlasLt::~BlasLt() {
  plans_.clear();
  if (library_->lt != nullptr) library_->destroy(library_->lt);
}

// Column-major: outᵀ [columns, tokens] = w · xᵀ, so that w is read along its rows.
const BlasLt::Plan& BlasLt::plan(const BlasGemm& p) {
  const std::uint32_t alignment =
      std::min({alignment_of(p.w), alignment_of(p.x), alignment_of(p.out)});
  const std::int64_t x_stride = p.x_stride > 0 ? p.x_stride : p.x_transposed ? p.tokens : p.in;
  const std::int64_t w_stride = p.w_stride > 0 ? p.w_stride : p.w_transposed ? p.columns : p.in;
  const Key key{p.type,         p.out_type,    alignment, p.tokens, p.columns,
                p.in,           p.out_stride,  x_stride,  w_stride, p.x_transposed,
                p.w_transposed, p.host_scales, p.f64};
  auto [at, fresh] = plans_.try_emplace(key);
  if (!fresh) return *at->second;
  const Library& l = *library_;
  auto plan = std::make_unique<Plan>(l);
  check(l.desc_create(&plan->desc, p.f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                      p.f64 ? CUDA_R_64F : CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  const cublasOperation_t turn_w = p.w_transposed ? CUBLAS_OP_N : CUBLAS_OP_T;
  const cublasOperation_t turn_x = p.x_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasLtPointerMode_t scales =
      p.host_scales ? CUBLASLT_POINTER_MODE_HOST : CUBLASLT_POINTER_MODE_DEVICE;
  check(l.desc_set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &turn_w, sizeof turn_w),
        "transpose of w");
  check(l.desc_set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, &turn_x, sizeof turn_x),
        "transpose of x");
  check(l.desc_set(plan->desc, CUBLASLT_MATMUL_DESC_POINTER_MODE, &scales, sizeof scales),
        "pointer mode");
  const cudaDataType_t type = p.f64 ? CUDA_R_64F : type_of(p.type);
  const cudaDataType_t out_type = p.f64 ? CUDA_R_64F : type_of(p.out_type);
  const auto in = static_cast<std::uint64_t>(p.in);
  const auto columns = static_cast<std::uint64_t>(p.columns);
  const auto tokens = static_cast<std::uint64_t>(p.tokens);
  check(l.layout_create(&plan->a, type, p.w_transposed ? columns : in,
                        p.w_transposed ? in : columns, w_stride),
        "layout of w");
  check(l.layout_create(&plan->b, type, p.x_transposed ? tokens : in, p.x_transposed ? in : tokens,
                        x_stride),
        "layout of x");
  check(l.layout_create(&plan->c, out_type, columns, tokens, p.out_stride), "layout of out");
  cublasLtMatmulPreference_t preference = nullptr;
  check(l.preference_create(&preference), "cublasLtMatmulPreferenceCreate");
  const std::size_t bytes = kBlasWorkspaceBytes;
  l.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    l.preference_set(preference, attribute, &alignment, sizeof alignment);
  }
  int found = 0;
  const cublasStatus_t status = l.heuristic(l.lt, plan->desc, plan->a, plan->b, plan->c, plan->c,
                                            preference, 1, &plan->choice, &found);
  l.preference_destroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    plans_.erase(at);
    fail(ErrorCode::kDevice, "cuBLASLt knows no algorithm for a GEMM of {} x {} x {}", p.tokens,
         p.in, p.columns);
  }
  at->second = std::move(plan);
  return *at->second;
}

void BlasLt::run(const BlasGemm& p, cudaStream_t stream) {
  const Plan& chosen = plan(p);
  check(library_->matmul(library_->lt, chosen.desc, p.out_scale, p.w, chosen.a, p.x, chosen.b,
                         p.beta, p.out, chosen.c, p.out, chosen.c, &chosen.choice.algo,
                         workspace_.get(), kBlasWorkspaceBytes, stream),
        "cublasLtMatmul");
}

}  // namespace bl::cuda
