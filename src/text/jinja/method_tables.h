#pragma once
// The tables behind find_method() and find_filter(), one for each file.

#include <span>

#include "text/jinja/builtin.h"

namespace bl::jinja {

std::span<const Builtin> string_search_methods();
std::span<const Builtin> string_change_methods();
std::span<const Builtin> string_class_methods();

std::span<const Builtin> text_filters();
std::span<const Builtin> markup_filters();
std::span<const Builtin> sequence_filters();
std::span<const Builtin> select_filters();
std::span<const Builtin> order_filters();
std::span<const Builtin> number_filters();

}  // namespace bl::jinja
