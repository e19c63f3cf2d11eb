import com.marcnuri.helm.Helm;
import java.nio.file.Path;

/** Prints what Helm's linter says about a chart, then one rendering for each list of settings, as JSON. */
class Chart {
  static String json(String text) {
    var out = new StringBuilder("\"");
    for (char c : text.toCharArray()) out.append(c < 32 || c > 126 || c == '"' || c == '\\' ? String.format("\\u%04x", (int) c) : c);
    return out.append('"').toString();
  }

  public static void main(String[] args) {
    var helm = new Helm(Path.of(args[0]));
    var lint = helm.lint().strict().call();
    System.out.println(lint.isFailed() + " " + lint.getMessages());
    for (int i = 1; i < args.length; i++) {
      var template = helm.template().withName("leasehold").withNamespace("leasehold").withKubeVersion("1.30.0");
      for (var setting : args[i].split(" ")) if (!setting.isEmpty()) template.set(setting.split("=", 2)[0], setting.split("=", 2)[1]);
      System.out.println(json(template.call()));
    }
  }
}
