// What administrators may do, and what all may ask about models.

#include <fmt/format.h>

#include "../model/adapter_files.h"
#include "base/file.h"
#include "model_server.h"
#include "support/data.h"

namespace bl::test {
namespace {

class AdminTest : public ModelServer {
 protected:
  AdminTest() { add_model("a"); }
};

TEST_F(AdminTest, RightsAreJudgedByTheKey) {
  open_with_keys();
  for (const char* path :
       {"/v1/model/load", "/v1/model/unload", "/models/load", "/models/unload", "/v1/lora/load",
        "/v1/lora/unload", "/v1/template/switch", "/v1/template/unload",
        "/v1/sampling/override/switch", "/v1/sampling/override/unload", "/lora-adapters"}) {
    EXPECT_EQ(post(path, "{}").status, 401) << path;
    EXPECT_EQ(post(path, "{}", "wrong").status, 401) << path;
    const HttpAnswer ordinary = post(path, "{}", "user");
    EXPECT_EQ(ordinary.status, 403) << path;
    EXPECT_NE(ordinary.body.find("--admin-key"), std::string::npos);
    EXPECT_NE(post(path, "{}", "admin").status / 100, 5) << path;
  }
  EXPECT_EQ(get("/v1/auth/permission", "user").json().at("permission"), "api");
  EXPECT_EQ(get("/v1/auth/permission", "admin").json().at("permission"), "admin");
}

TEST_F(AdminTest, WithoutAnAdminKeyNobodyAdministers) {
  server::ApiServer::Options options;
  options.access.keys = {"user"};
  open(std::move(options));
  EXPECT_EQ(post("/v1/model/load", "{}").status, 401);
  const HttpAnswer refused = post("/v1/model/load", "{}", "user");
  EXPECT_EQ(refused.status, 403);
  EXPECT_NE(refused.body.find("--admin-key"), std::string::npos);
}

TEST_F(AdminTest, WithoutAnyKeyNobodyAdministers) {
  open();
  const HttpAnswer refused = post("/v1/model/load", R"({"model_name":"a"})");
  EXPECT_EQ(refused.status, 403);
  EXPECT_NE(refused.body.find("--admin-key"), std::string::npos);
  EXPECT_EQ(loads_.load(), 0);
}

TEST_F(AdminTest, ModelsAreDescribedAsAgentsExpect) {
  open();
  EXPECT_EQ(get("/v1/model").status, 503);
  const Json unloaded = get("/v1/models/a").json();
  EXPECT_EQ(unloaded.at("loaded"), false);
  EXPECT_GT(unloaded.at("created"), 0);
  ASSERT_EQ(complete("a").status, 200);
  const Json list = get("/v1/models").json();
  EXPECT_EQ(list.at("object"), "list");
  EXPECT_EQ(list.at("data"), list.at("models"));
  EXPECT_EQ(get("/models").json(), list);
  const Json model = get("/v1/models/a").json();
  EXPECT_EQ(model, list.at("data").at(0));
  for (const char* name : {"id", "slug", "name", "model", "display_name"}) {
    EXPECT_EQ(model.at(name), "a");
  }
  const Json& meta = model.at("meta");
  EXPECT_EQ(meta.at("n_vocab"), 320);
  EXPECT_EQ(meta.at("n_embd"), 32);
  EXPECT_EQ(meta.at("n_ctx"), model.at("max_model_len"));
  // 2 blocks of q, k, v, o, gate, up and down, the embedding, and the head where it is another one.
  const int blocks = 2 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64);
  const int parameters = meta.at("n_params").get<int>() - blocks;
  EXPECT_TRUE(parameters == 320 * 32 || parameters == 2 * 320 * 32) << parameters;
  EXPECT_GT(meta.at("size"), 0);
  const Json capabilities = {"completion", "chat", "embeddings"};
  EXPECT_EQ(model.at("capabilities"), capabilities);
  const Json card = get("/v1/model").json();
  EXPECT_EQ(card.at("id"), "a");
  EXPECT_EQ(card.at("parameters").at("max_seq_len"), meta.at("n_ctx"));
  EXPECT_EQ(card.at("parameters").at("max_batch_size"), 2);
  EXPECT_EQ(get("/v1/model/list").json(), list);
  EXPECT_EQ(get("/v1/models/none").status, 404);
}

TEST_F(AdminTest, TokensAreEncodedAndDecoded) {
  open();
  const Json plain =
      post("/v1/token/encode", R"({"model":"a","text":"hi","add_bos_token":false})").json();
  EXPECT_EQ(plain.at("tokens"), (Json{'h', 'i'}));
  EXPECT_EQ(plain.at("length"), 2);
  const Json text = post("/v1/token/encode", R"({"text":"hi</s>"})").json();
  EXPECT_EQ(text.at("tokens"), (Json{256, 'h', 'i', 257}));
  EXPECT_EQ(post("/v1/token/encode", R"({"text":"</s>","encode_special_tokens":false})")
                .json()
                .at("length"),
            5);
  const Json chat = post("/v1/token/encode", R"({"text":[{"role":"user","content":"x"}]})").json();
  EXPECT_EQ(chat.at("tokens"), (Json{256, 258, 'x', 259}));
  EXPECT_EQ(post("/v1/token/decode", R"({"tokens":[256,104,105]})").json().at("text"), "<s>hi");
  EXPECT_EQ(post("/v1/token/decode", R"({"tokens":[256,104],"decode_special_tokens":false})")
                .json()
                .at("text"),
            "h");
  for (const char* wrong : {R"({"tokens":"a"})", R"({"tokens":[-1]})", R"({"tokens":[1.5]})",
                            R"({"tokens":[99999999999]})", R"({})"}) {
    EXPECT_EQ(post("/v1/token/decode", wrong).status, 400) << wrong;
  }
  EXPECT_EQ(post("/v1/token/encode", R"({"text":7})").status, 400);
}

TEST_F(AdminTest, TemplatesAreSwitchedByName) {
  const auto templates = scratch_dir("admin-templates");
  write_file_atomically(templates / "short.jinja", "{{ messages[0].content }}!");
  write_file_atomically(templates / "torn.jinja", "{% if %}");
  server::ApiServer::Options options;
  options.folders.templates = templates;
  open_with_keys(std::move(options));
  EXPECT_EQ(get("/v1/templates", "user").json().at("data"), (Json{"short", "torn"}));
  const auto length = [&] {
    return post("/v1/token/encode", R"({"model":"a","text":[{"role":"user","content":"x"}]})",
                "user")
        .json()
        .at("length")
        .get<int>();
  };
  EXPECT_EQ(length(), 4);
  const auto change = [&](const std::string& name) {
    return post("/v1/template/switch", Json{{"prompt_template_name", name}}.dump(), "admin").status;
  };
  EXPECT_EQ(change("short"), 200);
  EXPECT_EQ(length(), 2);
  for (const char* wrong : {"none", "../short", "short.jinja", "torn", ""}) {
    EXPECT_EQ(change(wrong), 400) << wrong;
  }
  EXPECT_EQ(length(), 2);
  EXPECT_EQ(post("/v1/template/unload", "", "admin").status, 200);
  EXPECT_EQ(length(), 4);
}

TEST_F(AdminTest, PresetsAreSwitchedByNameOrGiven) {
  const auto presets = scratch_dir("admin-presets");
  write_file_atomically(presets / "calm.json", R"({"temperature":0.3})");
  server::ApiServer::Options options;
  options.folders.presets = presets;
  open_with_keys(std::move(options));
  const auto change = [&](const char* body) {
    return post("/v1/sampling/override/switch", body, "admin").status;
  };
  EXPECT_EQ(change(R"({"preset":"calm"})"), 200);
  const Json shown = get("/v1/sampling/overrides", "user").json();
  EXPECT_EQ(shown.at("selected_preset"), "calm");
  EXPECT_EQ(shown.at("overrides").at("temperature"), 0.3);
  // The model is loaded after the switch, and keeps to the preset.
  EXPECT_EQ(change(R"({"overrides":{"max_tokens":{"override":1,"force":true}}})"), 200)
      << "a preset may force any parameter";
  const HttpAnswer forced = post(
      "/v1/completions", R"({"model":"a","prompt":"a","max_tokens":3,"ignore_eos":true})", "user");
  ASSERT_EQ(forced.status, 200) << forced.body;
  EXPECT_EQ(forced.json().at("usage").at("completion_tokens"), 1);
  for (const char* wrong :
       {R"({"preset":"none"})", R"({"preset":"../calm"})", R"({"preset":"./calm.json"})",
        R"({"overrides":[]})", R"({"overrides":{"heat":1}})", R"({})"}) {
    EXPECT_EQ(change(wrong), 400) << wrong;
  }
  EXPECT_EQ(post("/v1/sampling/override/unload", "", "admin").status, 200);
  EXPECT_EQ(get("/v1/sampling/override/list", "user").json().at("selected_preset"), nullptr);
}

TEST_F(AdminTest, AdaptersAreUsedByAllRequestsOnceTheyAreLoaded) {
  const auto adapters = scratch_dir("admin-good-adapters");
  AdapterFiles files;
  files.add("model.layers.0.self_attn.q_proj", {.in = 32, .out = 32});
  files.add("model.layers.1.mlp.down_proj", {.in = 64, .out = 32});
  files.write(adapters / "style");
  server::ApiServer::Options options;
  options.folders.adapters = adapters;
  open_with_keys(std::move(options));
  const auto vector = [&] {
    return post("/v1/embeddings", R"({"model":"a","input":"hello"})", "user").json().at("data");
  };
  const Json plain = vector();
  const HttpAnswer loaded =
      post("/v1/lora/load", R"({"loras":[{"name":"style","scaling":2.0}]})", "admin");
  EXPECT_EQ(loaded.json(), (Json{{"success", {"style"}}, {"failure", Json::array()}}));
  const Json styled = vector();
  EXPECT_NE(styled, plain);
  const Json numbered = get("/lora-adapters", "user").json();
  EXPECT_EQ(numbered.at(0).at("id"), 0);
  EXPECT_EQ(numbered.at(0).at("scale"), 2.0);
  EXPECT_EQ(post("/lora-adapters", R"([{"id":0,"scale":0}])", "admin").status, 200);
  EXPECT_EQ(vector(), plain);
  EXPECT_EQ(post("/lora-adapters", R"([{"id":0,"scale":2}])", "admin").status, 200);
  EXPECT_EQ(vector(), styled);
  EXPECT_EQ(get("/v1/lora", "user").json().at("data").at(0).at("scaling"), 2.0);
  EXPECT_EQ(post("/v1/lora/unload", "", "admin").status, 200);
  EXPECT_EQ(vector(), plain);
  EXPECT_EQ(get("/v1/lora", "user").json().at("data"), Json::array());
}

TEST_F(AdminTest, AdaptersThatAreNotThereAreNamed) {
  const auto adapters = scratch_dir("admin-adapters");
  std::filesystem::create_directories(adapters / "torn");
  write_file_atomically(adapters / "torn" / "adapter_config.json", "{");
  server::ApiServer::Options options;
  options.folders.adapters = adapters;
  open_with_keys(std::move(options));
  const HttpAnswer answer =
      post("/v1/lora/load",
           R"({"model":"a","loras":[{"name":"torn"},{"name":"../torn","scaling":0.5}]})", "admin");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json().at("failure"), (Json{"torn", "../torn"}));
  EXPECT_EQ(answer.json().at("success"), Json::array());
  EXPECT_EQ(get("/v1/loras", "user").json().at("data").at(0).at("id"), "torn");
  EXPECT_EQ(get("/lora-adapters", "user").json(), Json::array());
  EXPECT_EQ(post("/lora-adapters", "[]", "admin").status, 200);
  for (const char* wrong : {"{}", "[1]", R"([{"id":0,"scale":1}])", R"([{"scale":1}])", "["}) {
    EXPECT_EQ(post("/lora-adapters", wrong, "admin").status, 400) << wrong;
  }
  for (const char* wrong : {R"({})", R"({"loras":{}})", R"({"loras":[1]})",
                            R"({"loras":[{"name":"torn","scaling":"much"}]})",
                            R"({"loras":[{"name":"torn","scaling":1e9}]})"}) {
    EXPECT_EQ(post("/v1/lora/load", wrong, "admin").status, 400) << wrong;
  }
}

}  // namespace
}  // namespace bl::test
