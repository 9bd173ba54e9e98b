#pragma once
// Running one op on a backend by name, with inputs and outputs on the host.

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "ops/exec_context.h"
#include "ops/op_table.h"

namespace bl::test {

// Names of the backends that this build and this machine can run, "ref" first, "cpu …" once an
// instruction set.
std::vector<std::string> runnable_backends();

// A backend with its context and the tensors that a case puts on it.
class Device {
 public:
  explicit Device(const std::string& name, int threads = 2);
  ~Device();

  Backend& backend() { return *backend_; }
  ExecContext& context() { return ctx_; }
  const OpTable& ops() const { return backend_->ops(); }

  TensorView put(const std::vector<float>& values, const Shape& shape);
  // Rows of `shape` that lie `padding` elements further apart than their length.
  TensorView put_strided(const std::vector<float>& values, const Shape& shape, int padding);
  const std::int32_t* put(const std::vector<std::int32_t>& values);
  const std::int64_t* put(const std::vector<std::int64_t>& values);
  std::byte* zeros(std::size_t bytes);
  std::vector<float> get(const TensorView& view);
  std::vector<std::int32_t> get(const std::int32_t* values, std::size_t count);

  // check(way): as the backend chooses its launches, then with each of its choices at either end,
  // so that what a shipped plan leaves out is checked, too.
  void for_each_way(const std::function<void(const std::string& way)>& check);

 private:
  template <class T>
  TensorView put_typed(const std::vector<T>& values, DType dtype, const Shape& shape);

  std::unique_ptr<Backend> backend_;
  Arena scratch_;
  ExecContext ctx_;
  std::vector<Tensor> tensors_;
};

// Reproducible inputs.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::vector<float> normal(std::int64_t count, float deviation = 1.0f);
  int below(int n) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(n)); }

 private:
  std::mt19937_64 engine_;
};

// The largest |a − b| / max(1, |b|).
double worst_difference(const std::vector<float>& a, const std::vector<double>& b);
double worst_difference(const std::vector<float>& a, const std::vector<float>& b);

// A backend's name as a test's name: letters and digits only.
std::string test_name(const std::string& backend);

}  // namespace bl::test
