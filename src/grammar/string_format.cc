#include "grammar/string_format.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "grammar/pattern.h"

namespace bl {
namespace {

std::string full_date() {
  const std::string year = R"(\d{4})";
  const std::string leap =
      R"((\d\d(0[48]|[2468][048]|[13579][26])|([02468][48]|[2468]0|[13579][26])00))";
  return "(" + year + "-(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|" + year +
         "-(0[469]|11)-(0[1-9]|[12][0-9]|30)|" + year + "-02-(0[1-9]|1[0-9]|2[0-8])|" + leap +
         "-02-29)";
}

std::string full_time() {
  return R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";
}

std::string ipv4() {
  const std::string octet = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  return "(" + octet + "\\.){3}" + octet;
}

// RFC 4291, section 2.2, as RFC 3986 spells it.
std::string ipv6() {
  const std::string h = "[0-9A-Fa-f]{1,4}";
  const std::string last = "(" + h + ":" + h + "|" + ipv4() + ")";
  const auto before = [&](int most) {
    return "((" + h + ":){0," + std::to_string(most) + "}" + h + ")?";
  };
  const auto times = [&](int count) { return "(" + h + ":){" + std::to_string(count) + "}"; };
  return "(" + times(6) + last + "|::" + times(5) + last + "|(" + h + ")?::" + times(4) + last +
         "|" + before(1) + "::" + times(3) + last + "|" + before(2) + "::" + times(2) + last + "|" +
         before(3) + "::" + h + ":" + last + "|" + before(4) + "::" + last + "|" + before(5) +
         "::" + h + "|" + before(6) + "::)";
}

std::string hostname() {
  const std::string label = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  return label + "(\\." + label + ")*";
}

std::string email() {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
  const std::string quoted = R"("([ !#-\[\]-~]|\\[ -~])*")";
  return "(" + atom + "(\\." + atom + ")*|" + quoted + ")@(" + hostname() + "|\\[" + ipv4() +
         "\\])";
}

struct UriSigns {
  std::string sign;  // of a path segment
  std::string rest;  // of a query or fragment
  std::string host;
  std::string user;
};

// `beyond`: what may stand beside ASCII.
UriSigns uri_signs(const std::string& beyond) {
  const std::string plain = "A-Za-z0-9._~!$&'()*+,;=" + beyond + "-";
  const std::string percent = "%[0-9A-Fa-f]{2}";
  return {.sign = "([:@" + plain + "]|" + percent + ")",
          .rest = "([:@/?" + plain + "]|" + percent + ")",
          .host = "([" + plain + "]|" + percent + ")",
          .user = "([:" + plain + "]|" + percent + ")"};
}

std::string authority_and_path(const UriSigns& signs) {
  return "//(" + signs.user + "*@)?(" + signs.host + "*|\\[" + ipv6() + "\\])(:[0-9]*)?(/" +
         signs.sign + "*)*";
}

std::string query_and_fragment(const UriSigns& signs) {
  return "(\\?" + signs.rest + "*)?(#" + signs.rest + "*)?";
}

std::string uri(const std::string& beyond) {
  const UriSigns signs = uri_signs(beyond);
  return "[A-Za-z][A-Za-z0-9+.-]*:(" + authority_and_path(signs) + "|/(" + signs.sign + "+(/" +
         signs.sign + "*)*)?|" + signs.sign + "+(/" + signs.sign + "*)*|)" +
         query_and_fragment(signs);
}

std::string uri_reference(const std::string& beyond) {
  const UriSigns signs = uri_signs(beyond);
  const std::string no_colon = signs.host.substr(0, 2) + "@" + signs.host.substr(2);
  return "(" + uri(beyond) + "|(" + authority_and_path(signs) + "|/(" + signs.sign + "+(/" +
         signs.sign + "*)*)?|" + no_colon + "+(/" + signs.sign + "*)*|)" +
         query_and_fragment(signs) + ")";
}

// RFC 3339, appendix A.
std::string duration() {
  const std::string time = "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)";
  const std::string days = "([0-9]+D|[0-9]+M([0-9]+D)?|[0-9]+Y([0-9]+M([0-9]+D)?)?)";
  return "P(" + days + "(" + time + ")?|" + time + "|[0-9]+W)";
}

const std::string kPointer = "(/([^/~]|~[01])*)*";
constexpr const char* kBeyond = "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef";

struct Format {
  std::string_view name;
  std::string (*regex)();
};

const Format kFormats[] = {
    {"date", full_date},
    {"time", full_time},
    {"date-time", [] { return full_date() + "T" + full_time(); }},
    {"duration", duration},
    {"email", email},
    {"idn-email", [] { return std::string(R"([^\s@"]+@[^\s@"]+)"); }},
    {"hostname", hostname},
    {"ipv4", ipv4},
    {"ip-address", ipv4},
    {"ipv6", ipv6},
    {"uuid", [] { return std::string("[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"); }},
    {"uri", [] { return uri(""); }},
    {"uri-reference", [] { return uri_reference(""); }},
    {"iri", [] { return uri(kBeyond); }},
    {"iri-reference", [] { return uri_reference(kBeyond); }},
    {"json-pointer", [] { return kPointer; }},
    {"relative-json-pointer", [] { return "(0|[1-9][0-9]*)(#|" + kPointer + ")"; }},
};

const Format* find_format(std::string_view name) {
  const auto found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                  [&](const Format& format) { return format.name == name; });
  return found == std::end(kFormats) ? nullptr : found;
}

}  // namespace

bool is_known_format(std::string_view format) { return find_format(format) != nullptr; }

Automaton texts_of_format(std::string_view format) {
  const Format* found = find_format(format);
  BL_CHECK(found != nullptr);
  // Year 0 is none that readers know.
  const bool dated = format == "date" || format == "date-time";
  return search_of_pattern((dated ? "^(?!0000)(" : "^(") + found->regex() + ")$");
}

}  // namespace bl
