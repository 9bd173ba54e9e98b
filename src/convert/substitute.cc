#include "convert/substitute.h"

namespace bl {

void Substitutes::add(const LinearSite& linear, std::vector<std::uint16_t> rows) {
  auto held = std::make_unique<Held>();
  held->rows = std::move(rows);
  DenseMatrix dense;
  dense.name = linear.key;
  dense.weight.view = view_of(held->rows.data(), DType::kF16, Shape{linear.out(), linear.in()});
  held->packed = backend_.pack(dense, {});
  map_[linear.packed] = held->packed.get();
  held_.push_back(std::move(held));
}

}  // namespace bl
