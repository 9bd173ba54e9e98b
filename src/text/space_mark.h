#pragma once
#include <string_view>

namespace bl {

// The character that stands for a space in vocabularies of the sentencepiece kind: U+2581.
inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

}  // namespace bl
