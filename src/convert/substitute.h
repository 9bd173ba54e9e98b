#pragma once
#include <map>
#include <memory>
#include <vector>

#include "convert/block_model.h"
#include "convert/rounded_matrix.h"

namespace bl {

// Rounded weights that take the place of a model's own in forward passes.
class Substitutes {
 public:
  explicit Substitutes(Backend& backend) : backend_(backend) {}

  // `rows`: binary16 bits, at least [linear.out(), linear.in()], as decoded_rows() gives them.
  void add(const LinearSite& linear, std::vector<std::uint16_t> rows);
  // For CallPlan::substitutes.
  const std::map<const PackedMatrix*, const PackedMatrix*>* map() const { return &map_; }

 private:
  struct Held {
    std::vector<std::uint16_t> rows;
    std::unique_ptr<PackedMatrix> packed;
  };
  Backend& backend_;
  std::vector<std::unique_ptr<Held>> held_;
  std::map<const PackedMatrix*, const PackedMatrix*> map_;
};

}  // namespace bl
