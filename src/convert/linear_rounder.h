#pragma once
#include <map>
#include <set>
#include <string>
#include <variant>

#include "convert/gptq_matrix.h"

namespace bl {

// A linear after rounding, in the terms of its format.
using QuantizedMatrix = std::variant<RoundedMatrix, GptqRounded>;

const SlotCodes& codes_of(const QuantizedMatrix& matrix);
// The weights as readers of the format decode them: binary16 bits [padded out, in].
std::vector<std::uint16_t> decoded_rows(const QuantizedMatrix& matrix);

// How the linears of a model are rounded for a format.
class LinearRounder {
 public:
  struct Result {
    QuantizedMatrix matrix;
    double error = 0.0;  // the loss per token
  };
  virtual ~LinearRounder() = default;
  // Whether this linear is rounded at all, or stays as it is.
  virtual bool takes(const std::string&) const { return true; }
  // The order of the slots of an input with `in` channels.
  virtual SlotOrder slot_order(std::int64_t in) const = 0;
  // Rounds the linear `key` to weights near `wanted`, F32 [in, padded out] in slot order.
  virtual Result round(Products& products, const std::string& key, const OrderedHessian& hessian,
                       const TensorView& wanted) const = 0;
};

class Exl2Rounder : public LinearRounder {
 public:
  // `groups`: of every linear, by key. It must outlive this.
  Exl2Rounder(const std::map<std::string, GroupList>& groups, int sweeps)
      : groups_(groups), sweeps_(sweeps) {}
  SlotOrder slot_order(std::int64_t) const override { return {}; }
  Result round(Products& products, const std::string& key, const OrderedHessian& hessian,
               const TensorView& wanted) const override;

 private:
  const std::map<std::string, GroupList>& groups_;
  int sweeps_;
};

class GptqRounder : public LinearRounder {
 public:
  // `plain`: the linears that the format cannot hold.
  GptqRounder(const GptqLayout& layout, int sweeps, std::set<std::string> plain)
      : layout_(layout), sweeps_(sweeps), plain_(std::move(plain)) {}
  bool takes(const std::string& key) const override { return !plain_.contains(key); }
  SlotOrder slot_order(std::int64_t in) const override { return layout_.slot_order(in); }
  Result round(Products& products, const std::string& key, const OrderedHessian& hessian,
               const TensorView& wanted) const override;

 private:
  GptqLayout layout_;
  int sweeps_;
  std::set<std::string> plain_;
};

}  // namespace bl
