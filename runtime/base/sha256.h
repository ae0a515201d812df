#ifndef RUNTIME_BASE_SHA256_H_
#define RUNTIME_BASE_SHA256_H_

#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace megatrain {

// SHA-256 of bytes that come in pieces. Not thread-safe.
class Sha256 {
 public:
  Sha256();

  void Update(std::string_view data);

  // 64 lower-case hex digits. The last call.
  std::string HexDigest();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

}  // namespace megatrain

#endif  // RUNTIME_BASE_SHA256_H_
