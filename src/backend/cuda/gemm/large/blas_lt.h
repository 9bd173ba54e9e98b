#pragma once
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "backend/cuda/device/device_memory.h"
#include "tensor/dtype.h"

namespace bl::cuda {

// out[tokens, columns] (row_stride) = out_scale · x[tokens, in] · wᵀ + beta · out, with w [columns,
// in]; F32 sums. F32 inputs are multiplied in F32, not in TF32. With `f64`, everything is F64.
struct BlasGemm {
  DType type = DType::kF16;  // of x and w: F32, F16 or BF16
  const void* x = nullptr;
  const void* w = nullptr;
  DType out_type = DType::kF32;  // or F16, if `type` is F16
  void* out = nullptr;
  std::int64_t tokens = 0;
  std::int64_t columns = 0;
  std::int64_t in = 0;
  std::int64_t out_stride = 0;
  const void* out_scale = nullptr;  // F32 or, with `f64`, F64; device memory, unless `host_scales`
  const void* beta = nullptr;       // likewise
  bool host_scales = false;
  bool f64 = false;           // x, w, out and the scales, whatever the types say
  std::int64_t x_stride = 0;  // from row to row as given; 0: rows lie side by side
  std::int64_t w_stride = 0;  // likewise
  bool x_transposed = false;  // x is given as [in, tokens]
  bool w_transposed = false;  // w is given as [in, columns]
};

// cuBLASLt, loaded at run time, so that the program also starts where it is missing.
class BlasLt {
 public:
  // Throws kUnsupported, naming the library to install.
  explicit BlasLt(DeviceMemory& memory);
  ~BlasLt();
  BlasLt(const BlasLt&) = delete;
  BlasLt& operator=(const BlasLt&) = delete;

  void run(const BlasGemm& gemm, cudaStream_t stream);

 private:
  struct Library;
  struct Plan;
  // Types, alignment, sizes, strides and flags.
  using Key = std::tuple<DType, DType, std::uint32_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, std::int64_t, std::int64_t, bool, bool, bool, bool>;
  const Plan& plan(const BlasGemm& gemm);

  std::unique_ptr<Library> library_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  std::shared_ptr<std::byte> workspace_;
};

}  // namespace bl::cuda
