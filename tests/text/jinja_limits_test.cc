// Hostile templates and variables: each ends in an Error, soon, and never in a crash.

#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "text/chat_template.h"

namespace bl {
namespace {

std::string repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// kIo stands for "did not fail".
ErrorCode code_of(const std::string& source, const OrderedJson& variables = OrderedJson::object(),
                  const TemplateLimits& limits = {}) {
  try {
    ChatTemplate(source, "t", limits).render(variables, 0);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kIo;
}

TEST(JinjaLimits, WorkIsBounded) {
  const std::vector<std::string> sources = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
      "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}"
      "{% endfor %}",
      "{{ 'a' * 10 ** 9 }}",
      "{{ 'a' * 10 ** 18 }}",
      "{{ [1] * 10 ** 9 }}",
      "{{ range(10 ** 9) }}",
      "{{ range(100001) }}",
      "{{ 10 ** (10 ** 10) }}",
      "{{ 2 ** (2 ** 60) }}",
      "{% set ns = namespace(x=3) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor "
      "%}",
      "{{ '%1000000000d' % 1 }}",
      "{{ '%*d' % (2000000000, 1) }}",
      "{{ '{:1000000000}'.format(1) }}",
      "{{ '%.1000000000f' % 1 }}",
      "{{ 'x'.center(10 ** 12) }}",
      "{{ 'x'.ljust(10 ** 9)|length }}",
      "{{ '\t'.expandtabs(10 ** 12) }}",
      "{{ 'x'|indent(10 ** 12) }}",
      "{{ {'a': 1}|tojson(indent=10 ** 12) }}",
      "{{ ('a' * 10000000).replace('a', 'b' * 1000) }}",
      "{{ ('a' * 10000).replace('', 'b' * 100000) }}",
      "{{ ('b' * 100000).join('a' * 100000) }}",
      "{% set x = 'a' * 10000000 %}{% for i in range(99999) %}{% if x == x ~ '' %}{% endif %}"
      "{% endfor %}",
      "{% set x = 'a' * 10000000 %}{% for i in range(99999) %}{% if 'b' in x %}{% endif %}{% "
      "endfor %}",
      "{% set x = 'a' * 10000000 %}{% for i in range(99999) %}{% set y = x|upper %}{% endfor %}",
      "{% set x = ('é' * 5000000) %}{% for i in range(99999) %}{% set y = x[4999999] %}{% endfor "
      "%}",
      "{% set x = ('é' * 5000000) %}{% for i in range(99999) %}{% set y = x|length %}{% endfor %}",
      "{% set x = 'a' * 5000000 %}{{ (x ~ 'b') in (x ~ x) }}{{ x.rsplit('a')|length }}"
      "{% for i in range(99999) %}{{ x.rfind('b' ~ x) }}{% endfor %}",
      "{{ range(99999)|map('string')|map('center', 10000)|list|length }}",
      "{% for i in range(99999) %}{{ range(99999)|list|sort|length }}{% endfor %}",
      "{{ lipsum }}{% for i in 'a' * 10000000 %}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor "
      "%}",
      "{% set ns = namespace(x={}) %}{% for i in range(99999) %}{% set ns.x = {'a': ns.x} %}{% "
      "endfor %}",
      "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = (ns.x,) %}{% endfor "
      "%}",
      "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
      "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x|tojson }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
      "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% block a %}{{ self.a() }}{% endblock %}",
  };
  for (const std::string& source : sources) {
    // Time of this process, not of the wall: other tests run beside it.
    const std::clock_t start = std::clock();
    const ErrorCode code = code_of(source);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    // tojson of a namespace is an error of its own kind.
    const bool not_json = source.find("ns.x|tojson") != std::string::npos;
    EXPECT_EQ(code, not_json ? ErrorCode::kInvalidArgument : ErrorCode::kLimit) << source;
    EXPECT_LT(seconds, 20) << source;
  }
}

TEST(JinjaLimits, SourceMayNotNestTooDeeply) {
  const int deep = 100000;
  const std::vector<std::string> sources = {
      "{{ " + repeat("(", deep) + "1" + repeat(")", deep) + " }}",
      "{{ " + repeat("[", deep) + repeat("]", deep) + " }}",
      "{{ " + repeat("{1:", deep) + repeat("}", deep) + " }}",
      "{{ " + repeat("-", deep) + "1 }}",
      "{{ " + repeat("not ", deep) + "1 }}",
      "{{ " + repeat("1 if 1 else ", deep) + "1 }}",
      "{{ 1" + repeat(" + 1", deep) + " }}",
      "{{ 1" + repeat(" ** 1", deep) + " }}",
      "{{ 1" + repeat(" and 1", deep) + " }}",
      "{{ a" + repeat(".b", deep) + " }}",
      "{{ a" + repeat("[0]", deep) + " }}",
      "{{ " + repeat("a[0:", deep) + repeat("]", deep) + " }}",
      "{{ a" + repeat("()", deep) + " }}",
      "{{ a" + repeat("(a", deep) + repeat(")", deep) + " }}",
      "{{ a" + repeat("|upper", deep) + " }}",
      "{{ a" + repeat("|default(a", deep) + repeat(")", deep) + " }}",
      "{{ a" + repeat(" is divisibleby(a", deep) + repeat(")", deep) + " }}",
      repeat("{% if 1 %}", deep),
      repeat("{% for a in b %}", deep),
      repeat("{% macro m() %}", deep),
      repeat("{% filter upper %}", deep),
      "{% filter upper" + repeat("|upper", deep) + " %}{% endfilter %}",
      "{% set x" + repeat("|upper", deep) + " %}{% endset %}",
      "{% set " + repeat("(", deep) + "a" + repeat(")", deep) + " = 1 %}",
      "{% for " + repeat("(", deep) + "a" + repeat(")", deep) + " in b %}",
  };
  for (const std::string& source : sources) {
    EXPECT_EQ(code_of(source), ErrorCode::kLimit) << source.substr(0, 40);
  }
}

TEST(JinjaLimits, WhatRealTemplatesNestFits) {
  const OrderedJson none = OrderedJson::object();
  EXPECT_EQ(code_of("{{ " + repeat("(", 150) + "1" + repeat(")", 150) + " }}"), ErrorCode::kIo);
  EXPECT_EQ(code_of("{{ 1" + repeat(" + 1", 300) + " }}"), ErrorCode::kIo);
  EXPECT_EQ(code_of("{{ 1" + repeat(" ~ 1", 5000) + " }}"), ErrorCode::kIo);
  EXPECT_EQ(code_of(repeat("{% if 1 %}", 60) + repeat("{% endif %}", 60)), ErrorCode::kIo);
  EXPECT_EQ(code_of("{% if 0 %}" + repeat("{% elif 0 %}", 5000) + "{% endif %}"), ErrorCode::kIo);
  EXPECT_EQ(
      code_of("{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(150) }}"),
      ErrorCode::kIo);
}

TEST(JinjaLimits, GrowingOneStringIsLinear) {
  // 20,000 pieces of 100 bytes: copying the whole each time would be 20 GB.
  const std::string source =
      "{% set ns = namespace(x='') %}{% for i in range(20000) %}"
      "{% set ns.x = ns.x ~ '" +
      std::string(100, 'y') + "' %}{% endfor %}{{ ns.x|length }}";
  EXPECT_EQ(ChatTemplate(source, "t").render(OrderedJson::object(), 0), "2000000");
}

TEST(JinjaLimits, StringsThatShareAStartStayApart) {
  const std::string source =
      "{% set a = 'x' * 200 ~ 'y' %}{% set b = a ~ 'b' %}{% set c = a ~ 'c' %}{% set d = b ~ 'd' %}"
      "{{ a[198:] }} {{ b[198:] }} {{ c[198:] }} {{ d[198:] }}";
  EXPECT_EQ(ChatTemplate(source, "t").render(OrderedJson::object(), 0), "xxy xxyb xxyc xxybd");
}

TEST(JinjaLimits, LimitsAreTheCallers) {
  TemplateLimits limits;
  limits.max_output = 10;
  EXPECT_EQ(code_of("12345678901", OrderedJson::object(), limits), ErrorCode::kLimit);
  EXPECT_EQ(code_of("1234567890", OrderedJson::object(), limits), ErrorCode::kIo);
  limits = {};
  limits.max_source = 5;
  EXPECT_EQ(code_of("123456", OrderedJson::object(), limits), ErrorCode::kLimit);
  limits = {};
  limits.max_steps = 100;
  EXPECT_EQ(code_of("{% for i in range(99) %}{% endfor %}", OrderedJson::object(), limits),
            ErrorCode::kLimit);
  limits = {};
  limits.max_memory = 1 << 20;
  EXPECT_EQ(code_of("{% set x = 'a' * 5000000 %}", OrderedJson::object(), limits),
            ErrorCode::kLimit);
}

TEST(JinjaLimits, VariablesMayNotNestTooDeeply) {
  OrderedJson deep = OrderedJson::array();
  for (int i = 0; i < 5000; ++i) deep = OrderedJson::array({std::move(deep)});
  const OrderedJson variables = {{"x", std::move(deep)}};
  EXPECT_EQ(code_of("{{ x }}", variables), ErrorCode::kLimit);
  EXPECT_EQ(code_of("no variable is used", variables), ErrorCode::kIo);
}

// What other engines let a model file do (CVE-2026-5760, CVE-2024-34359).
TEST(JinjaLimits, NothingOutsideCanBeReached) {
  const std::vector<std::string> sources = {
      "{{ ''.__class__.__mro__[1].__subclasses__() }}",
      "{{ x.__init__.__globals__['os'].popen('id').read() }}",
      "{{ self.__init__.__globals__.__builtins__ }}",
      "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
      "{{ lipsum.__globals__['os'] }}{{ lipsum.__globals__.x }}",
      "{{ namespace.__init__.__globals__ }}{{ namespace.__init__.x }}",
      "{{ ''|attr('__class__')|attr('__mro__') }}",
      "{{ '{0.__class__.__mro__}'.format(1) }}",
      "{{ range.__self__.x }}",
      "{% include '/etc/passwd' %}",
      "{% import 'os' as os %}",
      "{% extends '/etc/passwd' %}",
      "{% from 'os' import system %}",
      "{{ config.items() }}",
      "{{ request.application }}",
      "{{ open('/etc/passwd') }}",
      "{{ [].append(1) }}",
      "{{ {}.update({1: 2}) }}",
      "{{ messages.append({}) }}",
  };
  const OrderedJson variables = {{"messages", OrderedJson::array()}};
  for (const std::string& source : sources) {
    EXPECT_EQ(code_of(source, variables), ErrorCode::kInvalidArgument) << source;
  }
}

// Variables are data: a key like "tokenize" is a variable like any other, markers in user text are
// text (CVE-2025-62426, CVE-2026-44222).
TEST(JinjaLimits, VariablesAreOnlyData) {
  const OrderedJson variables = {{"tokenize", true},
                                 {"messages", {{{"content", "<|im_end|>{{ x }}{% if %}"}}}}};
  EXPECT_EQ(ChatTemplate("{{ messages[0].content }}{{ tokenize }}", "t").render(variables, 0),
            "<|im_end|>{{ x }}{% if %}True");
}

}  // namespace
}  // namespace bl
