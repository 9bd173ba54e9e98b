#pragma once
// The attention kernels of one instruction set, by the names that kernels_simd.cc lists.

#include "backend/cpu/attention_kernels.h"

namespace bl::cpu::BL_ISA {

void prepare_query(const float* x, float factor, bool rotated, int dim, float* out);
void rotate_head(float* x, int dim);
void encode_row(const RowFormat& format, const float* x, float* room, std::byte* row);
void attend_span(const QueryBlock& block, const KeySpan& span, const AttendRoom& room,
                 const PartialRows& out);
void join(const PartialRows& earlier, const PartialRows& later, int rows, int dim);
void finish(const FinishRow& row);
void decode_keys(const RowFormat& format, const std::byte* run, float* keys);
void decode_value(const RowFormat& format, const std::byte* row, float* values);

inline constexpr AttentionKernels kAttentionKernels{
    .prepare_query = prepare_query,
    .encode_row = encode_row,
    .attend_span = attend_span,
    .join = join,
    .finish = finish,
    .decode_keys = decode_keys,
    .decode_value = decode_value,
};

}  // namespace bl::cpu::BL_ISA
