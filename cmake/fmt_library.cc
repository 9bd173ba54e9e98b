// fmt as a library of our own, since Debian has the shared one only: its definitions, and those
// templates that its headers declare to be instantiated elsewhere.

#include <fmt/format-inl.h>

template auto fmt::detail::thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto fmt::detail::thousands_sep_impl<wchar_t>(locale_ref) -> thousands_sep_result<wchar_t>;
template auto fmt::detail::decimal_point_impl<char>(locale_ref) -> char;
template auto fmt::detail::decimal_point_impl<wchar_t>(locale_ref) -> wchar_t;
