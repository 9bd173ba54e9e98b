#include "text/unicode_scripts.h"

#include <fmt/core.h>

#include <string_view>

namespace bl {
namespace {

// The ISO 15924 codes of the scripts of Unicode 14, except Common, Han and the scripts that count
// as Han.
constexpr std::string_view kScripts =
    "Adlm Aghb Ahom Arab Armi Armn Avst Bali Bamu Bass Batk Beng Bhks Bopo Brah Brai Bugi Buhd "
    "Cakm "
    "Cans Cari Cham Cher Chrs Copt Cpmn Cprt Cyrl Deva Diak Dogr Dsrt Dupl Egyp Elba Elym Ethi "
    "Geor "
    "Glag Gong Gonm Goth Gran Grek Gujr Guru Hang Hano Hatr Hebr Hluw Hmng Hmnp Hung Ital Java "
    "Kali "
    "Khar Khmr Khoj Kits Knda Kthi Lana Laoo Latn Lepc Limb Lina Linb Lisu Lyci Lydi Mahj Maka "
    "Mand "
    "Mani Marc Medf Mend Merc Mero Mlym Modi Mong Mroo Mtei Mult Mymr Nand Narb Nbat Newa Nkoo "
    "Nshu "
    "Ogam Olck Orkh Orya Osge Osma Ougr Palm Pauc Perm Phag Phli Phlp Phnx Plrd Prti Rjng Rohg "
    "Runr "
    "Samr Sarb Saur Sgnw Shaw Shrd Sidd Sind Sinh Sogd Sogo Sora Soyo Sund Sylo Syrc Tagb Takr "
    "Tale "
    "Talu Taml Tang Tavt Telu Tfng Tglg Thaa Thai Tibt Tirh Tnsa Toto Ugar Vaii Vith Wara Wcho "
    "Xpeo "
    "Xsux Yezi Yiii Zanb Zinh";

}  // namespace

std::string script_run_pattern() {
  const auto run = [](std::string_view members) {
    return fmt::format(R"([{0}][{0}\p{{sc:Zzzz}} ]*)", members);
  };
  std::string pattern = run(R"(\p{sc:Hani}\p{sc:Hira}\p{sc:Kana}\x{30fc})");
  // The space and the prolonged sound mark belong to Common, but neither begins a run of it.
  pattern += R"(|(?! |\x{30fc})\p{sc:Zyyy}(?:(?!\x{30fc})[\p{sc:Zyyy}\p{sc:Zzzz}])*)";
  for (std::size_t i = 0; i < kScripts.size(); i += 5) {
    pattern += '|';
    pattern += run(fmt::format(R"(\p{{sc:{}}})", kScripts.substr(i, 4)));
  }
  return pattern;
}

}  // namespace bl
