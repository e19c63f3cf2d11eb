// A program with Netflix's own Java client: Clients SERVICE_URL. Each line of its input is an application to wait for; the line `requests` makes every request of the
// protocol once, with the client's own transport.
import com.netflix.appinfo.ApplicationInfoManager;
import com.netflix.appinfo.InstanceInfo;
import com.netflix.appinfo.MyDataCenterInstanceConfig;
import com.netflix.appinfo.providers.EurekaConfigBasedInstanceInfoProvider;
import com.netflix.config.ConfigurationManager;
import com.netflix.discovery.DefaultEurekaClientConfig;
import com.netflix.discovery.DiscoveryClient;
import com.netflix.discovery.shared.Application;
import com.netflix.discovery.shared.Applications;
import com.netflix.discovery.shared.resolver.DefaultEndpoint;
import com.netflix.discovery.shared.transport.EurekaHttpClient;
import com.netflix.discovery.shared.transport.jersey.JerseyEurekaHttpClientFactory;
import java.io.BufferedReader;
import java.io.InputStreamReader;

public class Clients {
  public static void main(String[] args) throws Exception {
    String[][] settings = {
      {"eureka.serviceUrl.default", args[0]},
      {"eureka.preferSameZone", "false"}, {"eureka.shouldUseDns", "false"}, {"eureka.name", "java-app"}, {"eureka.port", "8123"},
      {"eureka.vipAddress", "java-vip"}, {"eureka.client.refresh.interval", "1"},
      {"eureka.lease.renewalInterval", "1"}, {"eureka.lease.duration", "20"}, {"eureka.metadata.color", "blue & green"},
      {"eureka.clientDataAccept", "full"}, {"eureka.instanceId", "java-1"},
    };
    for (String[] setting : settings) ConfigurationManager.getConfigInstance().setProperty(setting[0], setting[1]);
    MyDataCenterInstanceConfig config = new MyDataCenterInstanceConfig();
    InstanceInfo info = new EurekaConfigBasedInstanceInfoProvider(config).get();
    ApplicationInfoManager manager = new ApplicationInfoManager(config, info);
    DiscoveryClient client = new DiscoveryClient(manager, new DefaultEurekaClientConfig());
    manager.setInstanceStatus(InstanceInfo.InstanceStatus.UP);
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    System.out.println("started");
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      if (line.equals("requests")) {
        System.out.println(requests(args[0], info));
        continue;
      }
      String[] words = line.split(" ");
      // NAME COUNT: waits until the application has so many instances that are up.
      while (up(client.getApplication(words[0])) != Integer.parseInt(words[1])) Thread.sleep(50);
      Applications all = client.getApplications();
      // The client applies a delta in several steps, and fetches everything if its hash is another one.
      for (int waited = 0; waited < 30_000 && !isReconciled(all); waited += 50) {
        Thread.sleep(50);
        all = client.getApplications();
      }
      InstanceInfo first = words[1].equals("0") ? null : client.getApplication(words[0]).getInstances().get(0);
      System.out.println(words[0] + " " + words[1] + " " + (first == null ? "-" : describe(first)) + " " + isReconciled(all));
    }
    client.shutdown();
    System.out.println("stopped");
    System.exit(0);
  }

  /** The statuses of all requests, and what the reads found. */
  static String requests(String url, InstanceInfo template) {
    EurekaHttpClient client = new JerseyEurekaHttpClientFactory.JerseyEurekaHttpClientFactoryBuilder().withClientName("requests")
        .withMaxConnectionsPerHost(2).withMaxTotalConnections(2).build().newClient(new DefaultEndpoint(url));
    InstanceInfo info = new InstanceInfo.Builder(new InstanceInfo(template)).setInstanceId("java-2").setAppName("JAVA-APP").setSecureVIPAddress("java-secure").build();
    StringBuilder said = new StringBuilder();
    said.append(client.sendHeartBeat("JAVA-APP", "java-2", info, null).getStatusCode());
    said.append(" ").append(client.register(info).getStatusCode());
    said.append(" ").append(client.sendHeartBeat("JAVA-APP", "java-2", info, null).getStatusCode());
    said.append(" ").append(client.statusUpdate("JAVA-APP", "java-2", InstanceInfo.InstanceStatus.OUT_OF_SERVICE, info).getStatusCode());
    said.append(" ").append(client.getInstance("JAVA-APP", "java-2").getEntity().getStatus());
    said.append(" ").append(client.deleteStatusOverride("JAVA-APP", "java-2", info).getStatusCode());
    said.append(" ").append(client.getInstance("java-2").getEntity().getId());
    said.append(" ").append(client.getApplication("JAVA-APP").getEntity().size());
    said.append(" ").append(client.getVip("java-vip").getEntity().size());
    said.append(" ").append(client.getSecureVip("java-secure").getEntity().size());
    said.append(" ").append(client.getApplications().getEntity().size());
    said.append(" ").append(client.getDelta().getEntity().size());
    said.append(" ").append(client.cancel("JAVA-APP", "java-2").getStatusCode());
    said.append(" ").append(client.getInstance("java-2").getStatusCode());
    client.shutdown();
    return said.toString();
  }

  static int up(Application application) {
    if (application == null) return 0;
    int count = 0;
    for (InstanceInfo each : application.getInstances()) if (each.getStatus() == InstanceInfo.InstanceStatus.UP) count++;
    return count;
  }

  /** Whether what the client has is what the server said that it has. */
  static boolean isReconciled(Applications all) {
    return all.getReconcileHashCode().equals(all.getAppsHashCode());
  }

  static String describe(InstanceInfo info) {
    return info.getId() + " " + info.getHostName() + ":" + info.getPort() + " " + info.getVIPAddress() + " " + info.getMetadata().get("color");
  }
}
