#include "backend/device.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <span>

#include "backend/cpu/cpu_backend.h"
#include "backend/registry.h"
#include "base/error.h"

namespace bl::test {
namespace {

constexpr std::size_t kScratchBytes = std::size_t{64} << 20;

constexpr std::string_view kCpu = "cpu ";  // and the name of an instruction set

std::unique_ptr<Backend> open(const std::string& name, int threads) {
  if (!name.starts_with(kCpu)) return open_backend(name, {.threads = threads});
  for (const cpu::Isa isa : cpu::available_isas()) {
    if (name.substr(kCpu.size()) == cpu::name_of(isa)) {
      return std::make_unique<CpuBackend>(threads, isa);
    }
  }
  fail(ErrorCode::kNotFound, "no instruction set '{}'", name);
}

bool opens(const std::string& name) {
  try {
    return open(name, 1) != nullptr;
  } catch (const Error&) {
    return false;  // built, but this machine has no such device
  }
}

}  // namespace

std::vector<std::string> runnable_backends() {
  std::vector<std::string> names{"ref"};
  for (const cpu::Isa isa : cpu::available_isas()) {
    names.push_back(fmt::format("{}{}", kCpu, cpu::name_of(isa)));
  }
  // "auto", "cpu" and "cuda" are other names of those with an index or an instruction set.
  for (const std::string& name : backend_names()) {
    if (name.find(':') != std::string::npos && opens(name)) names.push_back(name);
  }
  return names;
}

Device::Device(const std::string& name, int threads)
    : backend_(open(name, threads)), scratch_(backend_->allocate(kScratchBytes)) {
  ctx_ = backend_->context(scratch_);
}

Device::~Device() = default;

template <class T>
TensorView Device::put_typed(const std::vector<T>& values, DType dtype, const Shape& shape) {
  tensors_.emplace_back(backend_->allocate(std::max<std::size_t>(values.size() * sizeof(T), 1)),
                        dtype, shape);
  const TensorView view = tensors_.back().view();
  backend_->upload(view, view_of(const_cast<T*>(values.data()), dtype, shape));
  return view;
}

TensorView Device::put(const std::vector<float>& values, const Shape& shape) {
  return put_typed(values, DType::kF32, shape);
}

TensorView Device::put_strided(const std::vector<float>& values, const Shape& shape, int padding) {
  const std::int64_t width = shape.elements() / shape[0];
  std::vector<float> padded(static_cast<std::size_t>(shape[0] * (width + padding)), NAN);
  for (std::int64_t r = 0; r < shape[0]; ++r) {
    std::copy_n(values.begin() + r * width, width, padded.begin() + r * (width + padding));
  }
  TensorView view = put(padded, {shape[0], width + padding});
  view.shape = shape;
  return view;
}

const std::int32_t* Device::put(const std::vector<std::int32_t>& values) {
  return put_typed(values, DType::kI32, {static_cast<std::int64_t>(values.size())})
      .as<std::int32_t>();
}

const std::int64_t* Device::put(const std::vector<std::int64_t>& values) {
  return put_typed(values, DType::kI64, {static_cast<std::int64_t>(values.size())})
      .as<std::int64_t>();
}

std::byte* Device::zeros(std::size_t bytes) {
  const std::vector<std::int32_t> values((bytes + 3) / 4, 0);
  return put_typed(values, DType::kI32, {static_cast<std::int64_t>(values.size())}).as<std::byte>();
}

std::vector<float> Device::get(const TensorView& view) {
  backend_->synchronize();
  std::vector<float> values(static_cast<std::size_t>(view.shape.elements()));
  backend_->download(view_of(values.data(), view.shape), view);
  return values;
}

std::vector<std::int32_t> Device::get(const std::int32_t* values, std::size_t count) {
  backend_->synchronize();
  const Shape shape{static_cast<std::int64_t>(count)};
  std::vector<std::int32_t> result(count);
  backend_->download(view_of(result.data(), DType::kI32, shape),
                     view_of(const_cast<std::int32_t*>(values), DType::kI32, shape));
  return result;
}

void Device::for_each_way(const std::function<void(const std::string& way)>& check) {
  check("as shipped");
  for (const LaunchChoice& choice : backend_->launch_choices()) {
    for (const std::int64_t from : {choice.least, choice.most}) {
      backend_->choose_launch(choice.name, from);
      check(choice.name + " " + std::to_string(from));
    }
    backend_->choose_launch(choice.name, choice.from);
  }
}

std::vector<float> Random::normal(std::int64_t count, float deviation) {
  std::normal_distribution<float> distribution(0.0f, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = distribution(engine_);
  return values;
}

double worst_difference(const std::vector<float>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0.0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference =
        std::fabs(static_cast<double>(a[i]) - b[i]) / std::max(1.0, std::fabs(b[i]));
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
  }
  return worst;
}

double worst_difference(const std::vector<float>& a, const std::vector<float>& b) {
  return worst_difference(a, std::vector<double>(b.begin(), b.end()));
}

std::string test_name(const std::string& backend) {
  std::string name;
  for (const char c : backend) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  }
  return name;
}

}  // namespace bl::test
