#pragma once
#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "format/load_weight_matrix.h"
#include "model/arch_spec.h"
#include "model/load_plan.h"
#include "ops/backend.h"

namespace bl {

// Writes a LoadPlan: finds each tensor under one of the names that an architecture gives it, checks
// it against the config, and adds the task that will load it. Packs nothing and reads no codes, so
// a wrong file is refused, and the memory known, before any of it is taken.
//
// Throws kNotFound and kInvalidFile, naming the tensor, what was found and what would be right.
class LoadPlanner {
 public:
  struct Args {
    Backend& backend;  // says what its packed weights will take
    const TensorSource& source;
    const GptqConfig* gptq = nullptr;
    // The linears will be cut into shares, for which their bytes must be there, in the order of the
    // files.
    bool for_shares = false;
    bool separate = false;  // LoadOptions::separate_linears
  };
  explicit LoadPlanner(const Args& args) : args_(args), seeded_source_(args.source) {}

  // The finished plan; to be called last.
  LoadPlan take();
  const TensorSource& source() const { return args_.source; }
  Backend& backend() const { return args_.backend; }

  // Whether plain matrices that hold several linears are to be planned as these.
  bool separates() const { return args_.separate; }
  // Says so for the linear KEY, which may also be quantized and then stays whole.
  bool separates(const std::string& key) const;

  // The first of these names below `prefix` that has weights; nullptr where none has.
  const std::string* pick(const std::string& prefix, const Names& names) const;
  // The name to load or, where none has weights, to name in the error.
  std::string key_of(const std::string& prefix, const Names& names) const;
  bool has_tensor(const std::string& name) const { return source().find(name) != nullptr; }
  // The tensors that a linear called KEY has, in whatever format.
  std::vector<std::string> tensors_of(const std::string& key) const;
  // Whether some task reads this tensor.
  bool reads(const std::string& tensor) const { return plan_.tensors.contains(tensor); }
  [[noreturn]] void fail_missing(const std::string& tried) const;

  // What adapters can attach to. A linear found by its key is a site already; `add_site` says what
  // else it is called.
  const AdapterSites& sites() const { return plan_.sites; }
  void add_site(const std::string& module, AdapterSite site);
  void refuse_sites_below(const std::string& module, std::string why) {
    plan_.sites.refuse_below(module, std::move(why));
  }
  // Why nothing can attach to the linears that are added from here on; empty: it can.
  void set_site_refusal(std::string why) { site_refusal_ = std::move(why); }

  struct LinearShape {
    std::int64_t in = 0;
    std::int64_t out = 0;
    bool transposed = false;
    bool more_out = false;
    bool replaceable = false;  // AdapterSite::replaceable
  };
  // Adds the linear KEY and returns its number among the model's linears.
  std::int32_t linear(const LoadTarget& target, const std::string& key, const LinearShape& shape);
  // A linear whose weights are a part of tensors that other tasks read, too.
  struct PartLinear {
    WeightMatrix matrix;                  // plain where `normalized` is set
    std::vector<std::string> tensors;     // that it is a part of
    std::vector<std::int64_t> rows = {};  // its outputs, in this order; empty: all
    std::int64_t out = 0;                 // outputs that are kept; 0: all
    bool normalized = false;              // each output row is scaled to length 1
    bool counted = false;                 // another task counts the bytes (a tied head)
    std::string key = {};                 // LoadTask::key; empty: the name of the matrix
  };
  std::int32_t linear(const LoadTarget& target, PartLinear linear);
  // The matrix KEY in whatever format, for parts of it.
  WeightMatrix whole_matrix(const std::string& key, const LinearShape& shape) const;
  // Lets what `writers` compute and `reader` alone reads, channel for channel, come in the order in
  // which the reader multiplies it, where the backend prefers that and the formats allow it. −1
  // among the writers stands for no linear. Their outputs are once or several times the reader's
  // inputs.
  void order_hidden(std::int32_t reader, std::initializer_list<std::int32_t> writers);

  // Norm weights [width] or [heads, width] at PREFIX.NAME.weight, with .bias where there is one.
  struct TensorNames {
    const std::string& prefix;
    const Names& names;
    std::initializer_list<Shape> shapes;
  };
  void norm(const LoadTarget& target, const NormSpec& spec, const TensorNames& names);
  // A norm whose weight is this tensor, and which has no bias.
  void norm_of_scale(const LoadTarget& target, const NormSpec& spec, const TensorNames& weight);
  // A float tensor of one of these shapes, all of which mean the same; the first name that exists.
  void vector(const LoadTarget& target, const TensorNames& names);
  // Values that are in no file.
  void values(const LoadTarget& target, std::vector<float> values);
  void scalar(const LoadTarget& target, float value);
  // A tensor of a single number, which is read at once.
  float read_scalar(const std::string& prefix, const Names& names);
  struct TableShape {
    std::int64_t least_rows = 0;
    std::int64_t width = 0;
    bool on_host = false;  // TableWork::on_host
  };
  void table(const LoadTarget& target, const std::string& tensor, const TableShape& shape);
  void expert_table(const LoadTarget& target, std::int64_t experts);

 private:
  std::int32_t add_linear(LoadTask task, MatrixWork work, LinearOrigin origin);
  void add(LoadTask task);
  VectorWork find_vector(const TensorNames& names);
  std::string first_existing(const std::string& prefix, const Names& names) const;
  const TensorInfo& check_floats(const std::string& tensor) const;
  std::size_t vector_bytes(const VectorWork& vector) const;

  Args args_;
  SeededSource seeded_source_;
  LoadPlan plan_;
  std::string site_refusal_;
};

// The rows first … first + count − 1, for PartLinear::rows.
std::vector<std::int64_t> row_range(std::int64_t first, std::int64_t count);

// `name` below `prefix`: "prefix.name"; either may be empty.
std::string join_name(const std::string& prefix, const std::string& name);

}  // namespace bl
