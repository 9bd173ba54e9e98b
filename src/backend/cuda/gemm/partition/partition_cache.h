#pragma once
// How the strips of one launch of products are shared out: a value, made on the host once a
// combination of matrices.

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "backend/cuda/gemm/skinny/regs_plan.h"
#include "backend/cuda/weights/cuda_matrix.h"

namespace bl::cuda {

// What the plan needs of a matrix.
struct NTileCosts {
  std::int32_t n_tiles = 0;
  std::uint64_t cost = 0;  // of a strip
};

// Nearly equal shares of all strips of all matrices, one after the other: the first strip of each
// CTA and, last, the count of all. At most `ctas` shares, none empty.
std::vector<std::int32_t> partition_n_tiles(std::span<const NTileCosts> matrices, int ctas);

// The last CTAs of a launch may find their multiprocessors taken by the launch before, and begin
// later than the others, by as much as strips of `cost` take.
struct LateCtas {
  int count = 0;
  std::uint64_t cost = 0;
};

// The same, where the last ones get fewer strips if that lets the launch end sooner.
std::vector<std::int32_t> partition_n_tiles(std::span<const NTileCosts> matrices, int ctas,
                                            const LateCtas& late);

// The fewest shares of which the longest is no longer than it is among `ctas`.
int fewest_cta_ranges(std::span<const NTileCosts> matrices, int ctas);

// The same shares for the product of one token or two, which multiplies a matrix's strips by fours:
// without strips of two matrices in one, where the launch ends sooner so.
std::vector<std::int32_t> partition_by_matrix(std::span<const NTileCosts> matrices, int ctas);

// For matrices each of which reads an input of its own.
struct InputLayoutRequest {
  int ctas = 0;
  bool alone = false;      // of the product of one token or two, as partition_by_matrix()
  LateCtas late = {};      // of others
  std::uint64_t cost = 0;  // of a second input, as strips' costs
};

// Shares without strips of two matrices, wish.ctas at most, where the launch ends no later so than
// with `mixed`, in which a share of two has two inputs; else `mixed`.
std::vector<std::int32_t> partition_by_input(std::span<const NTileCosts> matrices,
                                             std::vector<std::int32_t> mixed,
                                             const InputLayoutRequest& request);

// Shares of two parts of `strips` strips each, which count one after the other: none has strips of
// both. At most `ctas`, an even number of them, and no more than the longest needs.
std::vector<std::int32_t> partition_k_splits(std::int32_t n_tiles, int ctas);

struct CtaRanges {
  const std::int32_t* begins = nullptr;  // device, [ctas + 1]
  int ctas = 0;
  std::span<const std::int32_t> host_begins;  // the same
};

// How strips are to be shared out.
struct PartitionRequest {
  int ctas = 0;
  // Strip i of the first matrix goes with strip i of the second.
  bool pairs = false;
  // No more shares than needed, so that the next launch finds multiprocessors where its first CTAs
  // can begin.
  bool spare = false;
  int late = 0;         // see LateCtas; by a strip
  bool inputs = false;  // every matrix has one of its own
};

// First strips of shares, as a parameter of kernels: a load less before a CTA can begin.
struct CtaRangeBegins {
  static constexpr int kMost = 192;
  const std::int32_t* far = nullptr;  // where there are more
  std::int32_t near[kMost + 1] = {};

  CtaRangeBegins() = default;
  explicit CtaRangeBegins(const CtaRanges& cta_ranges);
};

// RegsPlan with its quads in device memory.
struct DeviceRegsPlan : RegsTiling {
  const RegsQuad* quads = nullptr;
};

// Plans in device memory, by the shapes of the matrices.
class PartitionCache {
 public:
  ~PartitionCache();
  PartitionCache() = default;
  PartitionCache(const PartitionCache&) = delete;
  PartitionCache& operator=(const PartitionCache&) = delete;

  CtaRanges find(std::span<const CodeWeights* const> matrices, const PartitionRequest& request);
  // Of two parts of the slots of one matrix.
  CtaRanges find_k_splits(const CodeWeights& matrix, int ctas);
  // Whether a product of one token left its reader a row to multiply another by, or read one. Then
  // others take the code that can do that, too: two kinds of code in a step cost more than what is
  // more general in one (docs/adr/0012).
  bool has_deferred_gate_mul() const { return factors_; }
  void set_deferred_gate_mul() { factors_ = true; }

  // See plan_regs. In one part, matrices that are cut alike have the same.
  const DeviceRegsPlan& find_regs_plan(const CodeWeights& matrix, int ctas, int max_k_splits);

 private:
  struct Entry {
    std::vector<std::int32_t> begins;
    CtaRanges cta_ranges;
  };
  static CtaRanges keep(Entry& entry, std::vector<std::int32_t> begins);
  std::map<std::vector<std::uint64_t>, Entry> entries_;
  std::map<std::vector<std::uint64_t>, DeviceRegsPlan> regs_;
  bool factors_ = false;
};

}  // namespace bl::cuda
