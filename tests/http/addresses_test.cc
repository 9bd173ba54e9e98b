// The kinds of addresses that a server listens on: IPv6, Unix sockets, TLS.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "http/server.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

http::Handlers hello() {
  return {.request =
              [](const std::shared_ptr<http::Exchange>& exchange) {
                exchange->respond({200, {}, "hello " + exchange->request().peer.substr(0, 4)});
              },
          .fault =
              [](int status, std::string_view message, const http::Request&) {
                return http::Response{status, {}, std::string(message)};
              }};
}

constexpr const char* kAsk = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

std::string answer_over(int socket) {
  EXPECT_GT(::send(socket, kAsk, std::strlen(kAsk), MSG_NOSIGNAL), 0);
  std::string answer;
  char bytes[4096];
  for (ssize_t count; (count = ::recv(socket, bytes, sizeof(bytes), 0)) > 0;) {
    answer.append(bytes, static_cast<std::size_t>(count));
  }
  ::close(socket);
  return answer;
}

int connected(int family, const sockaddr* address, socklen_t size) {
  const int socket = ::socket(family, SOCK_STREAM, 0);
  EXPECT_EQ(::connect(socket, address, size), 0) << std::strerror(errno);
  return socket;
}

TEST(HttpAddresses, IncludeIpv6) {
  const int probe = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const bool has_ipv6 =
      ::bind(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  ::close(probe);
  if (!has_ipv6) GTEST_SKIP() << "no IPv6 on this machine";
  http::Server server({.hosts = {"::1", "127.0.0.1"}, .port = 0}, hello());
  server.start();
  ASSERT_EQ(server.addresses().size(), 2u);
  EXPECT_EQ(server.addresses()[0], "http://[::1]:" + std::to_string(server.port()));
  address.sin6_port = htons(server.port());
  const int socket =
      connected(AF_INET6, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  EXPECT_TRUE(answer_over(socket).ends_with("hello [::1"));
}

TEST(HttpAddresses, IncludeUnixSockets) {
  const fs::path path = scratch_dir("unix-socket") / "s.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.string().copy(address.sun_path, sizeof(address.sun_path) - 1);
  const auto* pointer = reinterpret_cast<const sockaddr*>(&address);
  {
    http::Server server({.hosts = {path.string()}}, hello());
    server.start();
    EXPECT_TRUE(answer_over(connected(AF_UNIX, pointer, sizeof(address))).ends_with("hello unix"));
    EXPECT_THROW(http::Server({.hosts = {path.string()}}, hello()), Error) << "it is in use";
  }
  EXPECT_FALSE(fs::exists(path));
  // A socket that a killed server has left behind is replaced.
  const int left = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(left, pointer, sizeof(address)), 0);
  ::close(left);
  ASSERT_TRUE(fs::exists(path));
  http::Server server({.hosts = {path.string()}}, hello());
  server.start();
  EXPECT_TRUE(answer_over(connected(AF_UNIX, pointer, sizeof(address))).ends_with("hello unix"));
}

template <class T, void (*kFree)(T*)>
struct Freed {
  void operator()(T* object) const { kFree(object); }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509, X509_free>>;

// A key and a certificate that it has signed itself, as PEM files.
void write_certificate(const fs::path& certificate_file, const fs::path& key_file) {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  std::FILE* file = std::fopen(certificate_file.c_str(), "w");
  PEM_write_X509(file, certificate.get());
  std::fclose(file);
  file = std::fopen(key_file.c_str(), "w");
  PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
}

TEST(HttpAddresses, SpeakTls) {
  const fs::path folder = scratch_dir("tls");
  write_certificate(folder / "cert.pem", folder / "key.pem");
  http::ServerOptions options{.port = 0};
  options.tls_certificate = (folder / "cert.pem").string();
  EXPECT_THROW(http::Server(options, hello()), Error) << "the key is missing";
  options.tls_key = options.tls_certificate;
  EXPECT_THROW(http::Server(options, hello()), Error) << "no key in it";
  options.tls_key = (folder / "key.pem").string();
  http::Server server(options, hello());
  server.start();
  EXPECT_TRUE(server.addresses()[0].starts_with("https://"));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server.port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* pointer = reinterpret_cast<const sockaddr*>(&address);
  const std::unique_ptr<SSL_CTX, Freed<SSL_CTX, SSL_CTX_free>> context(
      SSL_CTX_new(TLS_client_method()));
  {
    const int socket = connected(AF_INET, pointer, sizeof(address));
    const std::unique_ptr<SSL, Freed<SSL, SSL_free>> tls(SSL_new(context.get()));
    SSL_set_fd(tls.get(), socket);
    ASSERT_EQ(SSL_connect(tls.get()), 1);
    EXPECT_GE(SSL_version(tls.get()), TLS1_2_VERSION);
    SSL_write(tls.get(), kAsk, static_cast<int>(std::strlen(kAsk)));
    std::string answer;
    char bytes[4096];
    for (int count; (count = SSL_read(tls.get(), bytes, sizeof(bytes))) > 0;) {
      answer.append(bytes, static_cast<std::size_t>(count));
    }
    EXPECT_TRUE(answer.ends_with("hello 127.")) << answer;
    ::close(socket);
  }
  // Bytes that are no TLS end their connection, and no other.
  EXPECT_EQ(answer_over(connected(AF_INET, pointer, sizeof(address))).find("200 OK"),
            std::string::npos);
}

}  // namespace
}  // namespace bl::test
