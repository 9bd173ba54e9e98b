#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "format/tensor_source.h"
#include "model/adapter_sites.h"
#include "model/checkpoint_names.h"

namespace bl {

// What an adapter adds to one module. The arrays are in the mapped file.
struct LoraModule {
  std::string name;  // the module's name in the model's files
  const AdapterSite* site = nullptr;
  HostArray a;       // [rank, in]; for an embedding [rank, rows of the table]
  HostArray b;       // [out, rank]
  double scale = 0;  // alpha / rank, or alpha / √rank
  // Instead of A and B, a whole head or embedding that replaces the model's with weight `scale`
  // (which is 1 here): [out, in]; for an embedding [rows of the table, out].
  HostArray whole;
  std::string file;  // for messages: the tensor of A
  std::string tensor;
  std::int64_t rank() const { return a.view.shape[0]; }
  bool is_whole() const { return !whole.view.empty(); }
};

// A LoRA as PEFT saves it: a folder with adapter_config.json and adapter_model.safetensors. Once
// one of these exists, every tensor has been checked against the model.
struct PeftAdapter {
  std::vector<LoraModule> modules;
};

// `sites` must outlive the result. `names` are those of the architecture.
// Throws kNotFound, kInvalidFile, kUnsupported with file, key or tensor, what was found and what
// would be right.
PeftAdapter read_peft_adapter(const std::filesystem::path& folder, const AdapterSites& sites,
                              const CheckpointNames& names);

// Returns the bytes of an adapter's tensors, estimated by the size of its file; 0 if there is none.
std::uint64_t peft_adapter_bytes(const std::filesystem::path& folder);

}  // namespace bl
