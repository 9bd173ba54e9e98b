#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "format/load_weight_matrix.h"
#include "model/adapter_sites.h"
#include "model/arch_spec.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "ops/backend.h"

namespace bl {

// Reads a model's weights in two walks over the same description: the first finds and checks every
// tensor and packs nothing, so that a wrong file is refused and the memory is known before any of
// it is taken; the second packs them in the same order.
class WeightReader {
 public:
  enum class Phase { kCheck, kLoad };
  // `done(bytes)` is called after each matrix of the second walk, with the bytes of its tensors; it
  // may throw to stop.
  WeightReader(Backend& backend, const TensorSource& source, const GptqConfig* gptq,
               std::function<void(std::size_t)> done)
      : backend_(backend),
        source_(source),
        seeded_source_(source),
        gptq_(gptq),
        done_(std::move(done)) {}

  void begin(Phase phase);
  Phase phase() const { return phase_; }
  const TensorSource& source() const { return source_; }
  Backend& backend() const { return backend_; }

  // What the first walk found.
  struct Totals {
    std::size_t stored = 0;            // bytes of tensors in the files
    std::size_t packed = 0;            // bytes that they will take in the backend's memory
    std::size_t quantized_stored = 0;  // the same of EXL2 and GPTQ matrices alone
    std::size_t quantized_packed = 0;
    std::size_t on_host = 0;     // beside `packed`: tables in host memory that the device reads
    std::int64_t max_in = 0;     // widest input and output of a product
    std::int64_t max_slots = 0;  // widest input as packed
    std::int64_t max_out = 0;
    std::vector<std::pair<std::string, double>> bits_per_weight;  // of each linear, in order
  };
  const Totals& totals() const { return totals_; }

  // What the first walk found that adapters can attach to. Linears found by their key are there
  // already; `add_site` says what else they are called. It does nothing in the second walk.
  const AdapterSites& sites() const { return sites_; }
  void add_site(const std::string& module, AdapterSite site);
  void refuse_sites_below(const std::string& module, std::string why) {
    if (phase_ == Phase::kCheck) sites_.refuse_below(module, std::move(why));
  }
  // Why nothing can attach to the linears that are read from here on; empty: it can.
  void set_site_refusal(std::string why) { site_refusal_ = std::move(why); }

  // The first of these names below `prefix` that has weights; nullptr where none has.
  const std::string* pick(const std::string& prefix, const Names& names) const;
  // The name to load or, where none has weights, to name in the error.
  std::string key_of(const std::string& prefix, const Names& names) const;
  // Tensors that a walk reads without this class.
  void use(const std::string& tensor) { used_.insert(tensor); }
  // Whether the first walk read this tensor.
  bool was_used(const std::string& tensor) const { return used_.contains(tensor); }
  bool has_tensor(const std::string& name) const { return source_.find(name) != nullptr; }
  [[noreturn]] void fail_missing(const std::string& tried) const;

  struct LinearShape {
    std::int64_t in = 0;
    std::int64_t out = 0;
    bool transposed = false;
    bool more_out = false;
    bool replaceable = false;  // AdapterSite::replaceable
  };
  // In the first walk a Linear has no weights, but its id.
  Linear linear(const std::string& key, const LinearShape& shape);
  // Outputs `rows` of a plain matrix, copied when it is packed. Ignored arguments in the second
  // walk.
  Linear linear(const DenseMatrix& matrix, std::vector<std::int64_t> rows);
  // For linears of the first walk (those of `writers` that have been read): what they write and
  // `reader` alone reads, channel for channel, comes in the order in which the reader multiplies
  // it, where the backend prefers that and the files allow it. A writer's outputs are once or
  // several times the reader's inputs.
  void order_hidden(const Linear& reader, std::initializer_list<const Linear*> writers);
  // A plain matrix as it is, or with rows of length 1.
  Linear linear(const DenseMatrix& matrix, std::int64_t out, bool normalized = false);

  // Norm weights [width] or [heads, width] at PREFIX.NAME.weight, with .bias where there is one.
  Norm norm(const NormSpec& spec, const std::string& prefix, const Names& names,
            std::initializer_list<Shape> shapes);
  // A tensor as F32 in the backend's memory; the first name that exists. Throws where none does or
  // the shape is another.
  Tensor vector(const std::string& prefix, const Names& names, std::initializer_list<Shape> shapes);
  // The same on the host.
  std::vector<float> host_values(const std::string& prefix, const Names& names,
                                 std::initializer_list<Shape> shapes);
  // A table that ops read rows of: stays mapped where the backend reads host memory.
  struct TableShape {
    std::int64_t least_rows = 0;
    std::int64_t width = 0;
    bool on_host = false;  // in memory of the host that the backend's ops reach (--embed-host)
  };
  HostArray table(const std::string& tensor, const TableShape& shape);
  // F32 values that are in no file, in the backend's memory.
  Tensor computed(const std::vector<float>& values, const Shape& shape);
  // Further bytes of weights; only the first walk counts them.
  void add_packed(std::size_t bytes);

 private:
  struct Pending {
    WeightMatrix matrix;
    PackOptions options;
    std::vector<std::string> tensors;  // given back after packing
    std::vector<std::int64_t> rows;    // of a plain matrix: gather these
    bool normalized = false;
    bool shared = false;     // its tensor is another's already (a tied head)
    std::size_t stored = 0;  // bytes in the files
  };
  Linear add(Pending pending, std::string module, bool transposed);
  Linear pack_next();
  // Of what goes to the backend as it is: bytes that it makes itself need not be there.
  const TensorSource& bulk_source() const {
    return backend_.makes_seeded() ? seeded_source_ : source_;
  }
  Buffer table_memory(std::size_t bytes, bool on_host);
  // `columns`: PackOptions'.
  Tensor upload_bias(const HostArray& bias, std::span<const std::int32_t> columns,
                     std::int64_t out);
  std::string first_existing(const std::string& prefix, const Names& names) const;

  Backend& backend_;
  const TensorSource& source_;
  SeededSource seeded_source_;
  const GptqConfig* gptq_;
  std::function<void(std::size_t)> done_;
  Phase phase_ = Phase::kCheck;
  std::vector<Pending> pending_;
  std::size_t next_ = 0;
  Totals totals_;
  AdapterSites sites_;
  std::string site_refusal_;
  std::set<std::string, std::less<>> used_;
};

// `name` below `prefix`: "prefix.name"; either may be empty.
std::string join_name(const std::string& prefix, const std::string& name);

}  // namespace bl
