#include "backend/cuda/device/tensor_map.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/device/cuda_check.h"
#include "base/error.h"

namespace bl::cuda {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

// Finds the driver function at run time, because the binary does not link against the driver.
EncodeTiled find_encoder() {
  constexpr unsigned kSince = 12000;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  BL_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, kSince,
                                                 cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) {
    fail(ErrorCode::kUnsupported, "the driver has no cuTensorMapEncodeTiled; one of CUDA 12 has");
  }
  return reinterpret_cast<EncodeTiled>(entry);
}

}  // namespace

CUtensorMap half_rows_map(const std::byte* rows, int dim, std::int64_t count, int box_rows) {
  static const EncodeTiled encode = find_encoder();
  CUtensorMap map{};
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(dim), static_cast<cuuint64_t>(count)};
  const cuuint64_t stride = static_cast<cuuint64_t>(dim) * 2;
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t step[2] = {1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<std::byte*>(rows), sizes, &stride,
             box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    fail(ErrorCode::kDevice, "the driver refused a map of {} rows: error {}", count,
         static_cast<int>(result));
  }
  return map;
}

}  // namespace bl::cuda
