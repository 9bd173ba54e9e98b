#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace bl {

// Maps texts to the pages that hold their keys and values.
//
// The index is a tree. Each node is a page, identified by the salt of its root and by all tokens
// from the start of the text to its own last one. Texts with the same salt may share pages; the
// salt stands for everything else that keys and values depend on (adapters, rotary tables chosen by
// length). Full pages are found by a hash chain, hash = mix(hash of the parent, ids), and then
// compared token by token below a parent that is known to match, so two texts with the same hash
// are two nodes. The last page of a text may be partly filled; such a node has no children.
//
// A page is in the cache's own memory or, once evicted, in a slot of host memory. A page in the
// cache's own memory never follows one on the host.
//
// The index knows nothing of pools and memory; PrefixCache does. If an insertion throws bad_alloc,
// nothing has changed; nothing else throws.
class PrefixIndex {
 public:
  using Node = std::int32_t;
  static constexpr Node kNone = -1;

  // Returns the root of texts with this salt; creates it if needed.
  Node root(std::string_view salt);
  // Returns the root of texts with this salt, or kNone.
  Node find_root(std::string_view salt) const;

  // Returns the child of `parent` that holds exactly these kPageSlots tokens, or kNone.
  Node find_full(Node parent, std::span<const std::int32_t> ids) const;
  // The child that shares the longest beginning with `ids`, and the length of that beginning in
  // tokens.
  struct Longest {
    Node node = kNone;
    std::int64_t tokens = 0;
  };
  Longest find_longest(Node parent, std::span<const std::int32_t> ids) const;

  // Adds a child with 1 to kPageSlots tokens. No other child may have the same tokens, and no other
  // node the same page.
  Node insert(Node parent, std::span<const std::int32_t> ids, std::int32_t page);
  // Removes a node without children, and its root if that was the last child.
  void erase(Node node);

  std::int32_t page(Node node) const { return at(node).page; }  // −1 if on the host
  std::int32_t host_slot(Node node) const { return at(node).host_slot; }
  bool on_host(Node node) const { return at(node).host_slot >= 0; }
  // The root, for the first page of a text.
  Node parent(Node node) const { return at(node).parent; }
  bool is_root(Node node) const { return at(node).parent == kNone; }
  std::span<const Node> children(Node node) const { return at(node).children; }
  bool has_children(Node node) const { return !at(node).children.empty(); }
  // Whether a child is in the cache's own memory.
  bool has_near_children(Node node) const { return at(node).near_children > 0; }
  std::span<const std::int32_t> ids(Node node) const { return at(node).ids; }
  // Nodes in the cache's own memory.
  std::int64_t size() const { return static_cast<std::int64_t>(of_page_.size()); }
  std::int64_t host_size() const { return static_cast<std::int64_t>(host_ages_.size()); }
  // Increases with every page that is added, removed or moved.
  std::uint64_t changes() const { return changes_; }
  // A number that belongs to this node alone, forever; 0 if the node is unused.
  std::uint64_t number(Node node) const { return at(node).number; }
  // The node that has this page, or kNone.
  Node node_of(std::int32_t page) const;
  // The sibling just before `node` in the order of tokens. A node with only the beginning of its
  // tokens would be there.
  Node neighbour_before(Node node) const;

  // Records that a page was moved to the host, which requires all its children to be there already,
  // or back.
  void move_to_host(Node node, std::int32_t host_slot);
  void move_to_page(Node node, std::int32_t page);

  // The order of use. All nodes of a text are touched together, its last page first, so that a page
  // never looks older than the pages that need it.
  void touch_text(Node last);
  void touch(Node node);
  const std::list<Node>& by_age() const { return ages_; }  // least recently used first
  const std::list<Node>& host_by_age() const { return host_ages_; }

 private:
  struct Entry {
    std::uint64_t hash = 0;
    std::uint64_t number = 0;
    Node parent = kNone;
    std::int32_t page = -1;
    std::int32_t host_slot = -1;
    std::int32_t near_children = 0;
    std::vector<std::int32_t> ids;  // tokens of this page
    std::vector<Node> children;     // sorted by their ids
    std::string salt;               // only in a root
    std::list<Node>::iterator age;
  };
  const Entry& at(Node node) const { return nodes_[static_cast<std::size_t>(node)]; }
  Entry& at(Node node) { return nodes_[static_cast<std::size_t>(node)]; }
  Node make_node();
  void free_node(Node node);
  void unlink(Node node);
  void drop_empty_root(Node node);
  std::size_t place_among(const Entry& parent, std::span<const std::int32_t> ids) const;

  std::vector<Entry> nodes_;
  std::vector<Node> unused_;
  std::map<std::string, Node, std::less<>> roots_;
  std::unordered_multimap<std::uint64_t, Node> full_;
  std::unordered_map<std::int32_t, Node> of_page_;
  std::list<Node> ages_;
  std::list<Node> host_ages_;
  std::uint64_t changes_ = 0;
};

}  // namespace bl
