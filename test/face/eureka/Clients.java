// A program with Netflix's own Java client: Clients SERVICE_URL. Each line of its input is an application to wait for.
import com.netflix.appinfo.ApplicationInfoManager;
import com.netflix.appinfo.InstanceInfo;
import com.netflix.appinfo.MyDataCenterInstanceConfig;
import com.netflix.appinfo.providers.EurekaConfigBasedInstanceInfoProvider;
import com.netflix.config.ConfigurationManager;
import com.netflix.discovery.DefaultEurekaClientConfig;
import com.netflix.discovery.DiscoveryClient;
import com.netflix.discovery.shared.Application;
import com.netflix.discovery.shared.Applications;
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
      String[] words = line.split(" ");
      // NAME COUNT: waits until the application has so many instances that are up.
      while (up(client.getApplication(words[0])) != Integer.parseInt(words[1])) Thread.sleep(50);
      Applications all = client.getApplications();
      InstanceInfo first = words[1].equals("0") ? null : client.getApplication(words[0]).getInstances().get(0);
      System.out.println(words[0] + " " + words[1] + " " + (first == null ? "-" : describe(first)) + " " + all.getReconcileHashCode().equals(all.getAppsHashCode()));
    }
    client.shutdown();
    System.out.println("stopped");
    System.exit(0);
  }

  static int up(Application application) {
    if (application == null) return 0;
    int count = 0;
    for (InstanceInfo each : application.getInstances()) if (each.getStatus() == InstanceInfo.InstanceStatus.UP) count++;
    return count;
  }

  static String describe(InstanceInfo info) {
    return info.getId() + " " + info.getHostName() + ":" + info.getPort() + " " + info.getVIPAddress() + " " + info.getMetadata().get("color");
  }
}
