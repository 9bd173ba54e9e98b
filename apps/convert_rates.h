#pragma once
// The rates that the options of `convert` ask for.

#include <vector>

#include "convert/converter.h"
#include "convert/rate_choice.h"
#include "convert_options.h"

namespace bl {

// Rates that are separated by commas, in the order given. Throws a usage error for what is no rate.
std::vector<double> rates_of(const std::string& list);

// The rates of -b in the order given; none where a size decides. Throws a usage error for what is
// no rate, and for options that exclude each other.
std::vector<double> listed_rates(const ConvertOptions& options);

// The limit that --target-size or --vram sets. Both must outlive it.
SizeLimit limit_of(const ConvertOptions& options, const ConvertArgs& args,
                   const Converter& converter);

// Bytes of the limit for the tensors of one weight file.
std::uint64_t shard_bytes_of(const ConvertOptions& options);

// The bytes of the weight files of a model whose linears have these groups.
std::uint64_t file_bytes_of(const ConvertOptions& options, const ConvertArgs& args,
                            const Converter& converter, std::span<const PlannedMatrix> matrices);

}  // namespace bl
