#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace bl::test {

// A tensor of an adapter's file, rounded to `dtype` when it is written.
struct AdapterTensor {
  Shape shape;
  std::vector<float> values;
  DType dtype = DType::kF32;
};

// An adapter as PEFT saves it, to be written whole or spoiled first.
struct AdapterFiles {
  OrderedJson config;
  std::map<std::string, AdapterTensor> tensors;

  // A LoRA of rank 4, alpha 8 without tensors, whose targets are "all-linear".
  AdapterFiles();
  // Random A and B of a module, under PEFT's names.
  struct Size {
    std::int64_t in = 0;
    std::int64_t out = 0;
    std::int64_t rank = 4;
  };
  void add(const std::string& module, const Size& size, DType dtype = DType::kF32);
  void add_embedding(const std::string& module, const Size& size);
  // A whole module of PEFT's modules_to_save, which the config names or not.
  void add_whole(const std::string& module, const Shape& shape, bool named = true);
  void write(const std::filesystem::path& folder) const;
};

}  // namespace bl::test
