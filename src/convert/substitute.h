#pragma once
#include <map>
#include <memory>
#include <vector>

#include "convert/block_model.h"

namespace bl {

// Rounded weights that take the place of a model's own in forward passes.
class Substitutes {
 public:
  explicit Substitutes(Backend& backend) : backend_(backend) {}

  // `rows`: binary16 bits, at least [linear.out(), linear.in()].
  void add(const LinearSite& linear, std::vector<std::uint16_t> rows);
  // A quantized matrix keeps its format, whose products take a host less time than those of plain
  // weights; only where the format has padded the outputs it is decoded.
  void add(const LinearSite& linear, const WeightMatrix& matrix);
  // For CallPlan::substitutes.
  const std::map<const PackedMatrix*, const PackedMatrix*>* map() const { return &map_; }

 private:
  struct Held {
    std::vector<std::uint16_t> rows = {};
    std::unique_ptr<PackedMatrix> packed = {};
  };
  void hold(const LinearSite& linear, std::unique_ptr<Held> held);

  Backend& backend_;
  std::vector<std::unique_ptr<Held>> held_;
  std::map<const PackedMatrix*, const PackedMatrix*> map_;
};

}  // namespace bl
