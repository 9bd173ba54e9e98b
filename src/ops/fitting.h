#pragma once
// What making quantized models asks of a backend beside the model's ops: large products, the
// factors of Hessians, rounding, and the sums that are read back.

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "tensor/tensor.h"

namespace bl {

// A run of slots that share a width and a row of scales, as EXL2 stores them.
struct SlotGroup {
  int bits = 0;
  std::int32_t slots = 0;  // a multiple of 32
  bool operator==(const SlotGroup&) const = default;
};

// The groups of one linear, in the order of slots; widths never rise.
using GroupList = std::vector<SlotGroup>;

// out [m, n] += multiplier · a [m, k] · b [k, n]. Rows of all three may be strided.
struct ProductArgs {
  TensorView out;
  TensorView a;
  TensorView b;
  bool a_transposed = false;  // a is given as [k, m]
  bool b_transposed = false;  // b is given as [n, k]
  bool upper = false;         // only what is on or above the diagonal of `out` is wanted
  float multiplier = 1.0f;
};

// y = (out − stream − bias) / multiplier: what x · W should be, from what a GEMM call left in
// `out`.
struct WantedOutputArgs {
  TensorView y;            // [tokens, columns]
  TensorView out;          // as y; rows may be strided
  TensorView stream = {};  // as y, what the call has added to; or empty
  TensorView bias = {};    // [columns] or empty
  float multiplier = 1.0f;
};

// product = cross[perm[k]] / tokens − product + damping · weights for each row k, in the first
// cross.columns() columns; the others stay.
struct CorrectionTargetArgs {
  TensorView product;                  // [in, padded out]
  TensorView cross;                    // [in, out], rows by channel
  TensorView weights;                  // [in, padded out]
  std::span<const std::int32_t> perm;  // [in]: slot → channel
  float tokens = 1.0f;
  float damping = 0.0f;
};

// The rows of W as columns in slot order: out[k][c] = weight[c][perm[k]], and 0 for c beyond its
// rows.
struct SlotOrderArgs {
  TensorView out;                      // [in, padded out]
  TensorView weight;                   // [out, in] of any float type, in host memory
  std::span<const std::int32_t> perm;  // [in]: slot → channel
};

// H = sum / tokens in the order of slots, with `damping` added to its diagonal.
struct FactorArgs {
  TensorView sum;                      // [in, in] by channel, of which the upper triangle is read
  std::span<const std::int32_t> perm;  // [in]: slot → channel
  double tokens = 1.0;
  double damping = 0.0;
};

struct FactoredHessian {
  Tensor h;             // [in, in]
  Tensor u_transposed;  // [in, in]: Uᵀ, where H⁻¹ = Uᵀ · U and U is upper triangular
  Tensor importance;    // [in]: 1 / U[k][k]²
};

// Codes q of EXL2 stand for RN16((q − 2^(bits−1)) · scale). A group has one binary16 maximum M, and
// each column a 4-bit code n that scales it by (n + 1)²/256.
struct Exl2GridRules {};

// Codes q of GPTQ stand for RN16((q − zero) · scale), with a binary16 scale and a whole zero point
// for each group and column.
struct GptqGridRules {
  int bits = 4;
  float least_zero = 0.0f;
  float largest_zero = 15.0f;
  bool symmetric = true;  // the zero point is always 2^(bits−1)
  bool min_max = false;   // scales span the weights, without a search
};

using GridRules = std::variant<Exl2GridRules, GptqGridRules>;

struct RoundArgs {
  std::span<const SlotGroup> groups;
  GridRules rules;
  TensorView h;              // as in FactoredHessian
  TensorView u_transposed;   // as in FactoredHessian
  TensorView importance;     // as in FactoredHessian
  TensorView wanted;         // [in, out] in slot order, contiguous; `out` is a multiple of 32
  int sweeps = 0;            // passes of coordinate descent after GPTQ
  bool only_errors = false;  // codes and scales of the result may be left out
};

// All in host memory.
struct RoundResult {
  std::vector<std::uint8_t> codes;  // [in, out]
  // EXL2: [groups, out] of 4-bit scale codes. GPTQ: [groups, out] of zero points.
  std::vector<std::uint8_t> column_codes;
  // EXL2: [groups] of maxima. GPTQ: [groups, out] of scales. Both are binary16 bits.
  std::vector<std::uint16_t> scales;
  std::vector<double> slot_errors;  // [in]: the share of the loss that GPTQ incurs in each slot
  double error = 0.0;  // the loss Σ_c (ŵ_c − w_c)ᵀ H (ŵ_c − w_c), after the sweeps
};

// All matrices are F32 in memory of allocate() and contiguous unless the contract says otherwise.
// Calls run in order, among each other and with the backend's ops; what a call returns or writes
// to host memory is complete when it returns. Sums have a fixed order, so that results repeat.
class FittingOps {
 public:
  virtual ~FittingOps() = default;

  // Memory of the backend for matrices. It must not outlive the backend. Throws kOutOfMemory.
  virtual Buffer allocate(std::size_t bytes) = 0;
  // Memory for rows that are kept from one pass to the next: as allocate() within the room of
  // set_row_room(), otherwise host memory. Only copy() and gather() may touch the latter.
  virtual Buffer allocate_rows(std::size_t bytes) = 0;
  // Whether ops may read this memory of allocate_rows().
  virtual bool is_near(const TensorView& rows) const = 0;
  // How much memory of the backend kept rows may take; nothing until it is called.
  virtual void set_row_room(std::size_t bytes) = 0;

  virtual void clear(const TensorView& to) = 0;
  // Rows of both may be strided, and both may be memory of allocate_rows().
  virtual void copy(const TensorView& to, const TensorView& from) = 0;
  virtual void transpose(const TensorView& to, const TensorView& from) = 0;
  // A matrix in host memory and of any float type as `b` of a product with b_transposed. The result
  // may share the memory of `weight`.
  virtual Tensor load_weights(const TensorView& weight) = 0;
  virtual void load_in_slot_order(const SlotOrderArgs& args) = 0;

  virtual void add_product(const ProductArgs& args) = 0;
  // to += factor · from
  virtual void add_scaled(const TensorView& to, const TensorView& from, float factor) = 0;
  // to[i] = rows[i], each a row of any memory of allocate() or allocate_rows().
  virtual void gather(const TensorView& to, std::span<const TensorView> rows) = 0;
  // Multiplies row i by factors[i].
  virtual void scale_rows(const TensorView& x, std::span<const float> factors) = 0;
  virtual void wanted_output(const WantedOutputArgs& args) = 0;
  virtual void correction_target(const CorrectionTargetArgs& args) = 0;
  // to[i][j] = sum[a][b], where a ≤ b are perm[i] and perm[j].
  virtual void gather_symmetric(const TensorView& to, const TensorView& upper,
                                std::span<const std::int32_t> perm) = 0;
  // Σ a[i] · b[perm[i]] over the rows of a and the columns of b, of which a may have more. Empty
  // perm: rows as they come. Rows may be strided. Summed in double.
  virtual double dot(const TensorView& a, const TensorView& b,
                     std::span<const std::int32_t> perm) = 0;

  // Nothing where a pivot is not positive.
  virtual std::optional<FactoredHessian> factor(const FactorArgs& args) = 0;
  virtual RoundResult round(const RoundArgs& args) = 0;

  // p = softmax of each row of logits [rows, vocab]; entropies [rows]: −Σ p · ln p.
  virtual void softmax(const TensorView& p, const TensorView& logits,
                       std::span<double> entropies) = 0;
  // divergences[r] = D(p[r] ‖ softmax(logits[r])) in nats.
  virtual void divergences(const TensorView& p, std::span<const double> entropies,
                           const TensorView& logits, std::span<double> divergences) = 0;
  // log_p[r] = the logarithm of what softmax(logits[r]) gives to ids[r].
  virtual void log_probabilities(const TensorView& logits, std::span<const std::int32_t> ids,
                                 std::span<double> log_p) = 0;
};

}  // namespace bl
