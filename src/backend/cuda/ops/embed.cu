#include "backend/cuda/device/device_math.h"
#include "backend/cuda/device/each_element.cuh"
#include "backend/cuda/ops/row_ops.h"

namespace bl::cuda {
namespace {

template <class T, int kPack>
struct Embed {
  const std::int32_t* ids;
  Rows<const T> table;
  Rows<float> out;
  float multiplier;
  bool accumulate;

  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    // The id is −1 where the step that sampled it found no token. Row 0 stands in for it, since
    // whoever reads the result of that step sees the −1.
    const auto stored = load_pack<kPack>(table[max(ids[row], 0)] + column);
    float* to = out[row] + column;
    Pack<float, kPack> result{};
    if (accumulate) result = load_pack<kPack>(to);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      // The product is rounded before it is added, so that both cases give the same value.
      const float value = exact_mul(float_of(stored.at[i]), multiplier);
      result.at[i] = accumulate ? exact_add(result.at[i], value) : value;
    }
    store_pack(to, result);
  }
};

}  // namespace

void embed(ExecContext& ctx, const EmbedArgs& args) {
  const bool fours = allows_vector_access(args.table, 4) && allows_vector_access(args.out, 4);
  visit_float_dtype(args.table.dtype, [&]<class T>(Tag<T>) {
    with_pack_size(fours, [&]<int kPack>(std::integral_constant<int, kPack>) {
      for_each_element<kPack>(
          ctx, args.tokens, args.out.columns(),
          Embed<T, kPack>{args.ids, rows_of<const T>(args.table), rows_of<float>(args.out),
                          args.multiplier, args.accumulate});
    });
  });
}

}  // namespace bl::cuda
