#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format/tensor_source.h"
#include "model/adapter_sites.h"

namespace bl {

// What an adapter adds to one module, in the memory of its file.
struct LoraModule {
  std::string name;  // as the model's files call it
  const AdapterSite* site = nullptr;
  HostArray a;       // [rank, in]; of an embedding [rank, rows of the table]
  HostArray b;       // [out, rank]
  double scale = 0;  // alpha / rank, or alpha / √rank
  // In place of A and B, a head or an embedding of the adapter's own, of which `scale` (1) parts
  // stand for as many of the model's: [out, in]; of an embedding [rows of the table, out].
  HostArray whole;
  std::string file;  // for messages: the tensor of A
  std::string tensor;
  std::int64_t rank() const { return a.view.shape[0]; }
  bool is_whole() const { return !whole.view.empty(); }
};

// A LoRA as PEFT saves it: a folder with adapter_config.json and adapter_model.safetensors. Every
// tensor has been checked against the model when one of these exists.
struct PeftAdapter {
  std::vector<LoraModule> modules;
};

using RenameRules = std::vector<std::pair<std::string, std::string>>;

// `sites` must outlive the result; `rename` are the architecture's rules for names of tensors.
// Throws kNotFound, kInvalidFile, kUnsupported with file, key or tensor, what was found and what
// would be right.
PeftAdapter read_peft_adapter(const std::filesystem::path& folder, const AdapterSites& sites,
                              const RenameRules& rename);

// Bytes of the tensors of such a folder, from its file's size; 0 where there is no file.
std::uint64_t peft_adapter_bytes(const std::filesystem::path& folder);

}  // namespace bl
