#include "harness/device/ranks/nccl_library.h"

#include <dlfcn.h>

namespace kvarena::device {

std::shared_ptr<const NcclLibrary> find_nccl(std::string& reason, const std::string& file) {
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    reason = ::dlerror();
    return nullptr;
  }
  auto found = std::make_shared<NcclLibrary>();
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr) reason = file + " has no " + name;
  };
  find(found->get_unique_id, "ncclGetUniqueId");
  find(found->comm_init_rank, "ncclCommInitRank");
  find(found->comm_abort, "ncclCommAbort");
  find(found->comm_get_async_error, "ncclCommGetAsyncError");
  find(found->group_start, "ncclGroupStart");
  find(found->group_end, "ncclGroupEnd");
  find(found->send, "ncclSend");
  find(found->recv, "ncclRecv");
  find(found->get_error_string, "ncclGetErrorString");
  return reason.empty() ? found : nullptr;
}

}  // namespace kvarena::device
