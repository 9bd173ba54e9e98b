#pragma once
#include <span>

#include "backend/cpu/cpu_matrix.h"
#include "ops/exec_context.h"
#include "tensor/tensor_view.h"

namespace bl::cpu {

// One matrix times some rows: out = multiplier · (x · weight) + bias, or out += with `accumulate`.
struct Product {
  const CpuMatrix* weight = nullptr;
  TensorView x;    // F32 [rows, in]
  TensorView out;  // F32 [rows, out]
  const float* bias = nullptr;
  float multiplier = 1.0f;
  bool accumulate = false;
};

// Runs all products in as few parallel regions as scratch memory allows. Products that read the
// same x and have equal layouts share its quantization. The result of a row depends neither on
// other rows nor on the number of threads.
void run_products(ExecContext& ctx, std::span<const Product> products);

// Scratch bytes that run_products() takes for products of up to `rows` rows and `in` inputs.
std::size_t product_scratch_bytes(std::int64_t rows, std::int64_t in, int threads);

}  // namespace bl::cpu
